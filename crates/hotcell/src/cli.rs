//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use hotcell_domain::{Bytes, CpuMillis, ImageRef, Language, Pids};

/// Sealed Linux containers for AI agents.
#[derive(Debug, Parser)]
#[command(name = "hotcell", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a snippet, a script or a command in a fresh sealed container
    ///
    /// Its output is streamed and its exit code becomes ours: 128+N after signal N,
    /// 124 after the timeout, 125 if Hotcell itself failed, 126 or 127 if the command
    /// could not be started. Ctrl-C ends everything it started.
    #[command(after_help = RUN_EXAMPLES, override_usage = RUN_USAGE)]
    Run(RunArgs),
    /// Show what this host can isolate and limit, and how to fix what it cannot
    Doctor(DoctorArgs),
}

const RUN_USAGE: &str = "hotcell run [OPTIONS] <-c CODE | FILE [-- ARG…] | -- CMD…>";

const RUN_EXAMPLES: &str = "\
Examples:
  hotcell run -c 'print(6 * 7)'
  hotcell run script.js
  hotcell run --lang ruby -c 'puts RUBY_VERSION'
  echo hello | hotcell run -- tr a-z A-Z
  hotcell run --tty -- bash";

/// What to run and in what container.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["code", "file", "command"]))]
pub(crate) struct RunArgs {
    /// Language of the code [default: by the file's extension, else python]
    #[arg(long, short, value_parser = parse_language)]
    pub(crate) lang: Option<&'static Language>,

    /// Code to run
    #[arg(long, short, conflicts_with = "file")]
    pub(crate) code: Option<String>,

    /// Script to run; it is copied into the container
    pub(crate) file: Option<PathBuf>,

    /// Command to run, or arguments of the script
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// What the container's root is made of: `host`, or `rootfs:/path`
    #[arg(long, default_value = "host", value_parser = ImageRef::parse)]
    pub(crate) image: ImageRef,

    /// Memory of all its processes together
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = Bytes::parse)]
    pub(crate) memory: Bytes,

    /// Processor cores
    #[arg(long, value_name = "N", default_value = "1", value_parser = CpuMillis::parse)]
    pub(crate) cpus: CpuMillis,

    /// Processes and threads at once
    #[arg(long, value_name = "N", default_value = "256", value_parser = parse_pids)]
    pub(crate) pids: Pids,

    /// Size of /tmp
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = Bytes::parse)]
    pub(crate) tmp: Bytes,

    /// End it after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Set an environment variable; without a value, pass ours on
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,

    /// Give it a terminal
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) tty: bool,

    /// Refuse to run where a limit cannot be enforced
    #[arg(long)]
    pub(crate) require_limits: bool,

    /// Print one JSON object at the end instead of streaming
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// Where Hotcell keeps its state.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// Where Hotcell keeps its state [default: /var/lib/hotcell for root, else ~/.local/state/hotcell]
    #[arg(long, value_name = "DIR", env = "HOTCELL_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// How to report.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

fn parse_language(name: &str) -> Result<&'static Language, String> {
    Language::by_name(name).ok_or_else(|| {
        let names: Vec<_> = hotcell_domain::LANGUAGES
            .iter()
            .map(|one| one.name)
            .collect();
        format!("known are {}", names.join(", "))
    })
}

fn parse_pids(text: &str) -> Result<Pids, String> {
    let number = text.parse().map_err(|_| "not a number".to_owned())?;
    Pids::new(number).map_err(|error| error.to_string())
}

/// The longest timeout, a year, as the agent has it.
const SECONDS_MAX: f64 = 31_536_000.0;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err("must be more than 0 and at most a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn something_to_run_is_required() {
        assert!(Cli::try_parse_from(["hotcell", "run"]).is_err());
        assert!(Cli::try_parse_from(["hotcell", "run", "--", "true"]).is_ok());
        assert!(Cli::try_parse_from(["hotcell", "run", "-c", "1", "x.py"]).is_err());
    }

    #[test]
    fn senseless_limits_are_refused() {
        for flag in [
            ["--memory", "1"],
            ["--cpus", "0"],
            ["--pids", "1"],
            ["--timeout", "-1"],
        ] {
            let line = ["hotcell", "run", "-c", "1", flag[0], flag[1]];
            assert!(Cli::try_parse_from(line).is_err(), "{flag:?}");
        }
    }
}
