//! `--engine`: one of the list, or the first of it that works.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hotcell_engine::EngineKind;

use crate::engines::Kinds;

const AUTO: &str = "auto";

/// Which container engine to use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EngineChoice {
    /// The first that works.
    Auto,
    /// This one and no other.
    Named(&'static dyn EngineKind),
}

impl EngineChoice {
    /// Parses `auto` or the name of an engine in the list.
    pub(crate) fn parser(kinds: Kinds) -> impl TypedValueParser<Value = Self> {
        let order: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let help = format!("The first that works: {}", order.join(", then "));
        let auto = PossibleValue::new(AUTO).help(help);
        let named = kinds
            .iter()
            .map(|kind| PossibleValue::new(kind.name()).help(kind.summary()));
        let values: Vec<_> = std::iter::once(auto).chain(named).collect();
        PossibleValuesParser::new(values).map(move |name| {
            let named = kinds.iter().find(|kind| kind.name() == name);
            named.map_or(Self::Auto, |kind| Self::Named(*kind))
        })
    }
}
