//! Logs go to stderr: stdout belongs to the protocol, or to a command's own output.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable that says how much is logged: `error` to `trace`, or `off`; also by part,
/// as in `warn,hotcell_service=debug`.
const LEVEL: &str = "HOTCELL_LOG";

/// Our own crates.
const OURS: &str = "hotcell";

/// Starts logging: of us, if the environment says nothing, what is at least as grave as
/// `level`; of the libraries below us, warnings; of the protocol's, errors only, because a client that
/// hangs up is none of ours.
pub(crate) fn start(level: LevelFilter) -> Result<()> {
    let targets = match std::env::var(LEVEL) {
        Ok(asked) if !asked.is_empty() => {
            let parsed = asked.parse::<Targets>();
            parsed
                .with_context(|| format!("{LEVEL}={asked} is not `error` to `trace`, or `off`"))?
        }
        _ => Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("rmcp", LevelFilter::ERROR)
            .with_target(OURS, level),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .init();
    Ok(())
}
