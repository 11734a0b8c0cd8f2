//! `hotcell run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use hotcell_domain::Language;

use super::{ContainerArgs, parse_language, parse_seconds};

pub(super) const RUN_USAGE: &str = "hotcell run [OPTIONS] <-c CODE | FILE [-- ARG…] | -- CMD…>";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  hotcell run -c 'print(6 * 7)'
  hotcell run script.js
  hotcell run --lang ruby -c 'puts RUBY_VERSION'
  echo hello | hotcell run -- tr a-z A-Z
  hotcell run --tty -- bash";

/// The arguments of `hotcell run`.
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

    /// End it after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Set an environment variable; without a value, pass ours on
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,

    /// Give it a terminal; what it writes passes to ours unfiltered, as with --raw
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) tty: bool,

    /// Pass escape sequences on to our terminal; without it only colours pass
    #[arg(long)]
    pub(crate) raw: bool,

    /// Print one JSON object at the end instead of streaming
    #[arg(long)]
    pub(crate) json: bool,

    /// Where pictures and other files that it puts into /workspace/artifacts are saved
    #[arg(long, value_name = "DIR", default_value = "artifacts")]
    pub(crate) artifacts: PathBuf,

    // Last: a heading lasts until the next one.
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
}
