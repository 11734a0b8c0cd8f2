//! `hotcell repl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotcell_domain::{Language, Name};

use super::{ContainerArgs, parse_language, parse_seconds};

pub(super) const REPL_HELP: &str = "\
Keys and commands:
  Ctrl-C      interrupt the code; variables are kept
  Ctrl-D      end
  %restart    forget all variables
  An empty line ends a block.

Examples:
  hotcell repl                       a container of its own, if no server runs
  hotcell repl --session default     the session of the running server's tools";

/// What to speak with, and where.
#[derive(Debug, Args)]
pub(crate) struct ReplArgs {
    /// Language of the code. Python keeps its variables; in others each input is a program
    #[arg(long, short, default_value = "python", value_parser = parse_language)]
    pub(crate) lang: &'static Language,

    /// Join this session of the running server and leave it there, for example `default`, that of
    /// the tools [default: one of its own, which ends with the command]
    #[arg(long, value_name = "NAME", value_parser = parse_session, conflicts_with = "alone")]
    pub(crate) session: Option<Name>,

    /// Use a container of its own even if a server runs, with the limits and the image below
    #[arg(long)]
    pub(crate) alone: bool,

    /// Interrupt code after this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,

    /// Where pictures and other files that code puts into /workspace/artifacts are saved
    #[arg(long, value_name = "DIR", default_value = "artifacts")]
    pub(crate) artifacts: PathBuf,

    // Last: a heading lasts until the next one.
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
}

fn parse_session(text: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| error.to_string())
}
