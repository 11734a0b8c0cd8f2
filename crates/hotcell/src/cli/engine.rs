//! Selects the container engine: a named one, or the first in the list that works.

use clap::Args;
use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use hotcell_engine::{ENGINES, EngineKind};

use crate::engines::Kinds;

const AUTO: &str = "auto";

/// Selects the engine of a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct SelectionArgs {
    /// Container engine to use
    #[arg(long, value_parser = EngineChoice::parser(ENGINES), default_value = "auto", env = "HOTCELL_ENGINE")]
    pub(crate) engine: EngineChoice,

    /// OCI runtime for Docker or Podman, such as `runsc` [default: the engine's own]
    #[arg(long, value_name = "NAME", env = "HOTCELL_RUNTIME")]
    pub(crate) runtime: Option<String>,

    /// Refuse to create a container if one of its limits cannot be enforced
    #[arg(long, env = "HOTCELL_REQUIRE_LIMITS", value_parser = BoolishValueParser::new())]
    pub(crate) require_limits: bool,
}

/// Settings of connections to other engines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Allow an unencrypted connection to Docker or Podman on another host
    #[arg(long, env = "HOTCELL_ALLOW_PLAIN_TCP", value_parser = BoolishValueParser::new())]
    pub(crate) allow_plain_tcp: bool,
}

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
