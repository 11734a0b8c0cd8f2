//! The arguments of an operation, as far as they may be recorded.
//!
//! Content is never recorded: only the sizes of input and files, only the names of variables. Texts
//! are redacted before they are truncated, so that no part of a secret is left at the end.

use std::fmt::Write as _;

use crate::redact::{redact, redact_argv};

/// Limit on all arguments of an event, as JSON.
const ARGUMENTS_BYTES_MAX: usize = 4 << 10;

/// Limit on one text.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Most entries of one list.
const ENTRIES_MAX: usize = 64;

/// The arguments of an operation.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    json: String,
    is_cut: bool,
}

impl Arguments {
    /// A text: a path, a directory, a pattern.
    pub fn text(&mut self, key: &'static str, value: &str) {
        self.field(key, |json| {
            push_string(json, &redact(value), TEXT_BYTES_MAX);
        });
    }

    /// A command line as a list of words.
    pub fn argv(&mut self, key: &'static str, argv: &[String]) {
        let shown = redact_argv(argv.iter().take(ENTRIES_MAX).map(String::as_str));
        let left = argv.len().saturating_sub(ENTRIES_MAX);
        self.list(key, shown.iter(), left);
    }

    /// Names, such as those of variables, without values.
    pub fn names<'a>(&mut self, key: &'static str, names: impl Iterator<Item = &'a str>) {
        let names: Vec<_> = names.collect();
        if !names.is_empty() {
            let left = names.len().saturating_sub(ENTRIES_MAX);
            self.list(key, names.iter().take(ENTRIES_MAX), left);
        }
    }

    /// Paths, as the caller named them.
    pub fn paths<'a>(&mut self, key: &'static str, paths: impl ExactSizeIterator<Item = &'a [u8]>) {
        let left = paths.len().saturating_sub(ENTRIES_MAX);
        let paths: Vec<_> = paths
            .take(ENTRIES_MAX)
            .map(|path| redact(&String::from_utf8_lossy(path)).into_owned())
            .collect();
        self.list(key, paths.iter(), left);
    }

    /// A number.
    pub fn number(&mut self, key: &'static str, value: u64) {
        self.field(key, |json| {
            let _ = write!(json, "{value}");
        });
    }

    /// A flag, if it is set. One that is not set is left out.
    pub fn flag(&mut self, key: &'static str, value: bool) {
        if value {
            self.field(key, |json| json.push_str("true"));
        }
    }

    fn list<T: AsRef<str>>(
        &mut self,
        key: &'static str,
        entries: impl Iterator<Item = T>,
        left: usize,
    ) {
        let more = format!("… {left} more");
        self.field(key, |json| {
            push_list(json, entries);
            if left > 0 {
                json.pop();
                json.push(',');
                push_string(json, &more, TEXT_BYTES_MAX);
                json.push(']');
            }
        });
    }

    /// Adds a field if it fits; otherwise the event says that something is left out.
    fn field(&mut self, key: &'static str, push: impl FnOnce(&mut String)) {
        let mut field = String::new();
        push(&mut field);
        if self.json.len() + field.len() > ARGUMENTS_BYTES_MAX {
            if field.starts_with('[') {
                field = shortened(&field, ARGUMENTS_BYTES_MAX.saturating_sub(self.json.len()));
            }
            self.is_cut = true;
        }
        if self.json.len() + field.len() <= ARGUMENTS_BYTES_MAX {
            let comma = if self.json.is_empty() { "" } else { "," };
            let _ = write!(self.json, "{comma}\"{key}\":{field}");
        }
    }

    /// Adds the field `args`, if there are any.
    pub(crate) fn push(&self, fields: &mut String) {
        if self.json.is_empty() && !self.is_cut {
            return;
        }
        let comma = if self.json.is_empty() { "" } else { "," };
        let cut = if self.is_cut { "\"cut\":true" } else { "" };
        let comma = if self.is_cut { comma } else { "" };
        let _ = write!(fields, ",\"args\":{{{}{comma}{cut}}}", self.json);
    }
}

/// As many entries of a JSON list of texts as fit into `bytes`.
fn shortened(list: &str, bytes: usize) -> String {
    let Ok(mut entries) = serde_json::from_str::<Vec<String>>(list) else {
        return "[]".to_owned();
    };
    let mut shortened = String::new();
    loop {
        shortened.clear();
        push_list(&mut shortened, entries.iter());
        if shortened.len() <= bytes || entries.pop().is_none() {
            return shortened;
        }
    }
}

fn push_list<T: AsRef<str>>(json: &mut String, entries: impl Iterator<Item = T>) {
    json.push('[');
    for (index, entry) in entries.enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_string(json, entry.as_ref(), TEXT_BYTES_MAX);
        if json.len() > 2 * ARGUMENTS_BYTES_MAX {
            // The text is truncated to less than this anyway.
            break;
        }
    }
    json.push(']');
}

/// Adds a JSON string of at most about `bytes_max` bytes of text.
pub(crate) fn push_string(json: &mut String, text: &str, bytes_max: usize) {
    let end = text.floor_char_boundary(bytes_max);
    json.push('"');
    for character in text[..end].chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\t' => json.push_str("\\t"),
            '\r' => json.push_str("\\r"),
            // A terminal may also obey 8-bit control characters.
            control if control.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    if end < text.len() {
        json.push('…');
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(arguments: &Arguments) -> serde_json::Value {
        let mut fields = "{\"x\":1".to_owned();
        arguments.push(&mut fields);
        fields.push('}');
        serde_json::from_str(&fields).expect("JSON")
    }

    #[test]
    fn without_arguments_there_is_no_field() {
        assert_eq!(
            written(&Arguments::default()),
            serde_json::json!({ "x": 1 })
        );
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let mut arguments = Arguments::default();
        arguments.argv("cmd", &vec!["x".repeat(900); 60]);
        arguments.text("cwd", "/workspace");
        let args = &written(&arguments)["args"];
        assert_eq!(args["cut"], true);
        let kept = args["cmd"].as_array().expect("a list").len();
        assert!((2..=5).contains(&kept), "{kept}");
        let many = vec!["x".to_owned(); 100];
        let mut arguments = Arguments::default();
        arguments.argv("cmd", &many);
        let args = written(&arguments);
        assert_eq!(args["args"]["cmd"][ENTRIES_MAX], "… 36 more");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_is_asked_for_becomes_bounded_json(
            argv in proptest::collection::vec(".{0,200}", 0..80),
            text in ".{0,2000}",
        ) {
            let mut arguments = Arguments::default();
            arguments.text("path", &text);
            arguments.argv("cmd", &argv);
            arguments.number("bytes", 7);
            let mut fields = String::new();
            arguments.push(&mut fields);
            prop_assert!(fields.len() <= 2 * ARGUMENTS_BYTES_MAX + 64, "{}", fields.len());
            prop_assert!(!fields.contains(char::is_control));
            written(&arguments);
        }
    }
}
