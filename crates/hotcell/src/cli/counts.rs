//! Limits on concurrent execs.

use clap::Args;

/// Limits on concurrent execs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct CountArgs {
    /// Maximum number of execs running at once in one container
    #[arg(long, value_name = "N", default_value_t = 4, env = "HOTCELL_EXECS_RUNNING_MAX", value_parser = parse_execs)]
    pub(crate) execs_running_max: usize,

    /// Maximum number of queued execs per container
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        env = "HOTCELL_EXECS_QUEUED_MAX"
    )]
    pub(crate) execs_queued_max: usize,
}

/// The most execs that one agent can run at once.
const EXECS_RUNNING_MAX: usize = 64;

fn parse_execs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=EXECS_RUNNING_MAX) => Ok(number),
        _ => Err(format!("must be a number from 1 to {EXECS_RUNNING_MAX}")),
    }
}
