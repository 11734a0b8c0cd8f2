//! Logs go to stderr: stdout belongs to the command's own output.

use tracing_subscriber::filter::LevelFilter;

/// The variable that says how much is logged: `error` to `trace`, or `off`.
const LEVEL: &str = "HOTCELL_LOG";

/// Starts logging.
pub(crate) fn start() {
    let level = std::env::var(LEVEL)
        .ok()
        .and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::WARN))
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}
