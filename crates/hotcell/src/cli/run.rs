//! `hotcell run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use hotcell_domain::{Bytes, CpuMillis, ImageRef, Language, Pids};

use super::{StateArgs, parse_seconds};
use crate::image::PolicyArgs;

pub(super) const RUN_USAGE: &str = "hotcell run [OPTIONS] <-c CODE | FILE [-- ARG…] | -- CMD…>";

pub(super) const RUN_EXAMPLES: &str = "\
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

    /// What the container's root is made of: `host`, `rootfs:/path`, or an image such as
    /// `python:3.12-slim`, which is pulled if it is missing
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
    pub(crate) images: PolicyArgs,

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
