//! `hotcell run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgGroup, Args};
use hotcell_domain::{ImageName, Language};

use super::{LimitArgs, StateArgs, parse_seconds};
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
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
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
    /// `python:3.12-slim` or an alias of one, which is pulled if it is missing
    #[arg(long, default_value = "host", value_parser = ImageName::parse)]
    pub(crate) image: ImageName,

    /// End it after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Set an environment variable; without a value, pass ours on
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,

    /// Give it a terminal; what it writes passes to ours unfiltered, as with --raw
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) tty: bool,

    /// Refuse to run where a limit cannot be enforced
    #[arg(long, env = "HOTCELL_REQUIRE_LIMITS", value_parser = BoolishValueParser::new())]
    pub(crate) require_limits: bool,

    /// Pass escape sequences on to our terminal; without it only colours pass
    #[arg(long)]
    pub(crate) raw: bool,

    /// Print one JSON object at the end instead of streaming
    #[arg(long)]
    pub(crate) json: bool,

    // Last: a heading lasts until the next one.
    #[command(flatten)]
    pub(crate) limits: LimitArgs,

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
