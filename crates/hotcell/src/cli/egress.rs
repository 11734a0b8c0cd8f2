//! `hotcell egress`.

use clap::{Args, Subcommand};
use hotcell_egress::ProfileName;

use super::{AuditPlaceArgs, AuditSpanArgs, ReloadArgs, StateArgs};

/// The arguments of `hotcell egress`.
#[derive(Debug, Args)]
pub(crate) struct EgressArgs {
    #[command(subcommand)]
    pub(crate) command: EgressCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// Tell whether a profile of the configuration allows a URL; exits with 1 if it does not
    ///
    /// Decides by name, port, method and path, as the server does. Nothing is resolved or connected.
    Check(EgressCheckArgs),
    /// Show what containers reached and what was refused, from the audit log
    Log(EgressLogArgs),
    /// List the connections that wait for an answer, with `ask = "hold"` in `[egress]`
    ///
    /// Of your own containers; the user of the server and root see those of all.
    Pending(EgressPendingArgs),
    /// Let a container reach a host that it has asked for
    ///
    /// As if the host stood in `allow` of its profile, until the container ends. Whoever waits goes on at once.
    Allow(EgressAllowArgs),
    /// Refuse a host that a container has asked for, until the container ends
    Deny(EgressDenyArgs),
    /// Have the running server read its configuration file again, as `hotcell reload` does
    Reload(ReloadArgs),
}

/// The arguments of `hotcell egress check`.
#[derive(Debug, Args)]
pub(crate) struct EgressCheckArgs {
    /// The profile
    #[arg(value_parser = ProfileName::parse)]
    pub(crate) profile: ProfileName,

    /// A URL such as `https://api.example.com/path`, or `HOST:PORT`
    pub(crate) url: String,

    /// Method of the request
    #[arg(long, short = 'X', default_value = "GET")]
    pub(crate) method: String,
}

/// The arguments of `hotcell egress log`.
#[derive(Debug, Args)]
pub(crate) struct EgressLogArgs {
    /// Only what was refused
    #[arg(long)]
    pub(crate) denied: bool,

    /// Only of this container
    #[arg(long, value_name = "ID")]
    pub(crate) container: Option<String>,

    #[command(flatten)]
    pub(crate) span: AuditSpanArgs,

    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// The arguments of `hotcell egress pending`.
#[derive(Debug, Args)]
pub(crate) struct EgressPendingArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell egress allow`.
#[derive(Debug, Args)]
pub(crate) struct EgressAllowArgs {
    /// The id of a question, or a host: then all containers that have asked for it
    #[arg(value_name = "ID|HOST")]
    pub(crate) target: String,

    /// Only one connection
    #[arg(long, conflicts_with = "session")]
    pub(crate) once: bool,

    /// For the container's life, which is the default
    #[arg(long)]
    pub(crate) session: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell egress deny`.
#[derive(Debug, Args)]
pub(crate) struct EgressDenyArgs {
    /// The id of a question, or a host: then all containers that have asked for it
    #[arg(value_name = "ID|HOST")]
    pub(crate) target: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
