//! `hotcell memory`: what scripts remember.

use clap::{Args, Subcommand};

use super::StateArgs;

/// The arguments of `hotcell memory`.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    pub(crate) command: MemoryCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// List memories and saved tools: name, version, size and last change
    #[command(alias = "list")]
    Ls(MemoryLsArgs),
    /// Remove memories or saved tools; exit 1 if one of them does not exist
    #[command(alias = "remove")]
    Rm(MemoryRmArgs),
}

/// The arguments of `hotcell memory ls`.
#[derive(Debug, Args)]
pub(crate) struct MemoryLsArgs {
    /// Only names that begin so
    #[arg(default_value = "")]
    pub(crate) prefix: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The arguments of `hotcell memory rm`.
#[derive(Debug, Args)]
pub(crate) struct MemoryRmArgs {
    /// Names of the memories
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// They are names of saved tools
    #[arg(long)]
    pub(crate) tool: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
