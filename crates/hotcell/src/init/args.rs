//! The arguments of `hotcell init`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(crate) const EXAMPLES: &str = "\
Examples:
  hotcell init                                       ask, write, try
  hotcell init --yes --client claude-code            the defaults, and connect Claude Code
  hotcell init --reach network --memory 2g --client none
                                                     a server for a team";

/// The arguments of `hotcell init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Who uses it
    #[arg(long, value_enum)]
    pub(super) reach: Option<Reach>,

    /// Memory that a container may use, such as 512m
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<String>,

    /// Client to connect, as `hotcell mcp-config` names them, or `none`
    #[arg(long, value_name = "CLIENT", value_parser = parse_client)]
    pub(super) client: Option<String>,

    /// Take the defaults instead of asking
    #[arg(long)]
    pub(super) yes: bool,

    /// Do not run a command in a container
    #[arg(long)]
    pub(super) no_try: bool,

    /// Where to write the configuration [default: ~/.config/hotcell/hotcell.toml]
    #[arg(long, value_name = "FILE")]
    pub(super) path: Option<PathBuf>,

    /// Replace a file that exists
    #[arg(long)]
    pub(super) force: bool,
}

/// Who can connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reach {
    /// Programs on this machine
    Local,
    /// Other machines too, with a token
    Network,
}

fn parse_client(text: &str) -> Result<String, String> {
    if text == super::NO_CLIENT || crate::mcp_config::is_client(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "known are {}, {}",
        crate::mcp_config::client_names().join(", "),
        super::NO_CLIENT
    ))
}
