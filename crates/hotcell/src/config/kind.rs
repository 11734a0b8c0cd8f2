//! The types of values in the configuration file.

use std::any::TypeId;

use clap::{Arg, ArgAction};
use hotcell_domain::Pids;
use toml::de::DeValue;

/// The TOML type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Integer,
    /// An integer or a float.
    Number,
    /// A string such as `"512m"`, or an integer of bytes.
    Size,
    Text,
}

/// Value names of flags that take numbers, whatever type they are parsed into.
const NUMBERS: [&str; 4] = ["N", "SECONDS", "DAYS", "MS"];

impl Kind {
    /// The kind of a flag. Its own parser decides what is valid; this decides how it is written.
    pub(super) fn of(arg: &Arg) -> Self {
        let parsed = arg.get_value_parser().type_id();
        let is = |types: &[TypeId]| types.iter().any(|one| parsed == *one);
        let value_name = arg.get_value_names().and_then(|names| names.first());
        let value_name = value_name.map_or("", |name| name.as_str());
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
        if is_switch || is(&[TypeId::of::<bool>()]) {
            Self::Boolean
        } else if value_name == "SIZE" {
            Self::Size
        } else if is(&integers()) {
            Self::Integer
        } else if NUMBERS.contains(&value_name) {
            Self::Number
        } else {
            Self::Text
        }
    }

    /// The value in the form that the flag accepts; `Err` says what was expected.
    pub(super) fn text(self, value: &DeValue<'_>) -> Result<String, String> {
        let integer = || {
            let number = value.as_integer()?;
            i64::from_str_radix(number.as_str(), number.radix()).ok()
        };
        let text = match self {
            Self::Boolean => value.as_bool().map(|it| it.to_string()),
            Self::Integer => integer().map(|it| it.to_string()),
            Self::Number => integer()
                .map(|it| it.to_string())
                .or_else(|| Some(value.as_float()?.as_str().to_owned())),
            Self::Size => integer()
                .map(|it| it.to_string())
                .or_else(|| Some(value.as_str()?.to_owned())),
            Self::Text => value.as_str().map(str::to_owned),
        };
        text.ok_or_else(|| format!("must be {}, not {}", self.described(), described(value)))
    }

    /// A description with an article, for sentences.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Boolean => "true or false",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Size => "a size (a string such as \"512m\", or an integer of bytes)",
            Self::Text => "a string",
        }
    }

    /// A short description, for tables.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Size => "size",
            Self::Text => "string",
        }
    }
}

fn integers() -> [TypeId; 9] {
    [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
        TypeId::of::<isize>(),
        TypeId::of::<Pids>(),
    ]
}

/// Describes the type of a value, with an article.
pub(super) fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
