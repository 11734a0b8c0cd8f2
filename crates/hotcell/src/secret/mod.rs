//! `hotcell secret`: the secrets of egress rules, as the configuration has them.

mod test;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{SecretArgs, SecretCommand};
use crate::config::Tables;

/// Runs the subcommand.
pub(crate) fn manage(arguments: &SecretArgs, tables: &Tables) -> Result<ExitCode> {
    match &arguments.command {
        SecretCommand::Test(arguments) => test::run(arguments, &tables.egress),
    }
}
