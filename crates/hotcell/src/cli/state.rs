//! `hotcell state`: the state directory as a whole.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AuditPlaceArgs, EngineArgs, StateArgs};

/// The arguments of `hotcell state`.
#[derive(Debug, Args)]
pub(crate) struct StateCommandArgs {
    #[command(subcommand)]
    pub(crate) command: StateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Check that rows, output logs, audit log and engine agree; exits with 1 if they do not
    ///
    /// Reads only, whether a server runs or not. A difference that the server settles meanwhile
    /// is not reported.
    Check(StateCheckArgs),
    /// Write a copy of the state to a file or to stdout, while the server runs
    ///
    /// Contains the database as of one moment, the output logs that it knows, the audit log,
    /// hashes of tokens, and a manifest with digests. Containers, workspaces and images are not in
    /// it: `fs_export` copies a workspace. The file is for its owner alone: like the state directory,
    /// it holds the environment variables of living containers.
    Export(StateExportArgs),
    /// Restore a copy into a state directory that is empty or does not exist
    ///
    /// Everything is verified before anything is written. Containers of the copy that no engine has
    /// end at the next start of the server, and their running execs are lost.
    Import(StateImportArgs),
}

/// The arguments of `hotcell state check`.
#[derive(Debug, Args)]
pub(crate) struct StateCheckArgs {
    /// Print the differences as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) engines: EngineArgs,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// The arguments of `hotcell state export`.
#[derive(Debug, Args)]
pub(crate) struct StateExportArgs {
    /// File to create (a tar archive), or `-` for stdout
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) place: AuditPlaceArgs,
}

/// The arguments of `hotcell state import`.
#[derive(Debug, Args)]
pub(crate) struct StateImportArgs {
    /// File that `hotcell state export` wrote
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
