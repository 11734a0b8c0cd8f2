//! `hotcell ps`, `top`, `exec`, `logs` and `kill`: clients of the running server.

use std::time::Duration;

use clap::Args;

use super::{StateArgs, parse_seconds};

/// The arguments of `hotcell ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Of all principals, also those that have ended
    #[arg(long, short)]
    pub(crate) all: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print one snapshot and exit, as without a terminal
    #[arg(long)]
    pub(crate) once: bool,

    /// Print one snapshot as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Id or alias of the container
    pub(crate) container: String,

    /// Command to run
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,

    /// Give it a terminal; what it writes passes to ours unfiltered, as with --raw
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) tty: bool,

    /// Set an environment variable; without a value, pass ours on
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,

    /// Directory to run it in
    #[arg(long, value_name = "DIR", default_value = "/workspace")]
    pub(crate) cwd: String,

    /// End it after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Pass escape sequences on to our terminal; without it only colours pass
    #[arg(long)]
    pub(crate) raw: bool,

    /// Print one JSON object at the end instead of streaming
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Id of the exec, or id or alias of a container, for its newest exec
    #[arg(value_name = "EXEC|CONTAINER")]
    pub(crate) target: String,

    /// Go on until it ends
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Pass escape sequences on to our terminal; without it only colours pass
    #[arg(long)]
    pub(crate) raw: bool,

    /// Print each message as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell forward`.
#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    /// Id or alias of the container
    pub(crate) container: String,

    /// The port to listen on here (0 = any), and the port inside if it differs
    #[arg(value_name = "LOCAL[:PORT]", value_parser = Ports::parse)]
    pub(crate) ports: Ports,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// A port here, and the one inside that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) local: u16,
    pub(crate) inside: u16,
}

impl Ports {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "not LOCAL or LOCAL:PORT with ports of 1 to 65535".to_owned();
        let (local, inside) = text.split_once(':').unwrap_or((text, text));
        let local = local.parse().map_err(|_| wrong())?;
        let inside = inside.parse().ok().filter(|port| *port != 0);
        let inside = inside.ok_or_else(wrong)?;
        Ok(Self { local, inside })
    }
}

/// The arguments of `hotcell kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Ids or aliases of the containers
    #[arg(required = true, value_name = "CONTAINER")]
    pub(crate) containers: Vec<String>,

    /// At once, without asking its processes to end
    #[arg(long, short)]
    pub(crate) force: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
