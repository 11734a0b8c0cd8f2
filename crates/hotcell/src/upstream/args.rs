//! The arguments of `hotcell upstream`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::{DiscoveryArgs, StateArgs};

/// The arguments of `hotcell upstream`.
#[derive(Debug, Args)]
pub(crate) struct UpstreamArgs {
    #[command(subcommand)]
    pub(super) command: UpstreamCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum UpstreamCommand {
    /// List MCP servers: where each was found, its transport and the tools known of it; starts none
    #[command(alias = "ls")]
    List(ListArgs),
    /// Show the tools of a server; it is started if none are known
    Tools(ToolsArgs),
    /// Call a tool and print what it answers
    Call(CallArgs),
    /// Approve the definitions of a server's tools as they are now
    ///
    /// Starts the server to see them. A tool whose definition changes afterwards needs to be approved again.
    Approve(ApproveArgs),
    /// Start servers and say whether they work; exits with 1 if one does not
    Test(TestArgs),
    /// Add a server to hotcell.toml
    #[command(
        override_usage = "hotcell upstream add [OPTIONS] NAME -- COMMAND [ARGUMENT]...\n       \
                                hotcell upstream add [OPTIONS] NAME --url URL"
    )]
    Add(AddArgs),
}

/// Which servers there are.
#[derive(Debug, Args)]
pub(super) struct PlaceArgs {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) discovery: DiscoveryArgs,

    #[command(flatten)]
    pub(super) state: StateArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    pub(super) place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct ToolsArgs {
    /// Name or alias of the server
    pub(super) server: String,

    /// Start the server and list its tools anew
    #[arg(long)]
    pub(super) refresh: bool,

    #[command(flatten)]
    pub(super) place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// Name or alias of the server
    pub(super) server: String,

    /// Name of the tool
    pub(super) tool: String,

    /// Arguments, as a JSON object
    #[arg(default_value = "{}")]
    pub(super) arguments: String,

    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::cli::parse_seconds)]
    pub(super) timeout_s: Duration,

    #[command(flatten)]
    pub(super) place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// Name or alias of the server
    pub(super) server: String,

    /// Name of the tool [default: all]
    pub(super) tool: Option<String>,

    #[command(flatten)]
    pub(super) place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Names or aliases of servers [default: all]
    pub(super) servers: Vec<String>,

    #[command(flatten)]
    pub(super) place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// What to call the server
    pub(super) name: String,

    /// Address of a server that speaks HTTP
    #[arg(long, conflicts_with = "command")]
    pub(super) url: Option<String>,

    /// Variable of the server's environment; write secrets as '${ENV:NAME}' (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(super) environment: Vec<String>,

    /// Token of an HTTP server; write it as '${ENV:NAME}'
    #[arg(long, value_name = "TOKEN", requires = "url")]
    pub(super) bearer: Option<String>,

    /// Program and its arguments
    #[arg(last = true, required_unless_present = "url")]
    pub(super) command: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}
