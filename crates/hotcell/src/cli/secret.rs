//! `hotcell secret`.

use clap::{Args, Subcommand};
use hotcell_egress::SecretName;

/// The arguments of `hotcell secret`.
#[derive(Debug, Args)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Read a secret's value and tell whether it can be sent, without showing it
    ///
    /// Reads it as this user, with the variables of this shell; a server that runs as another
    /// user may see something else. Exits with 1 if there is no usable value.
    Test(SecretTestArgs),
}

/// The arguments of `hotcell secret test`.
#[derive(Debug, Args)]
pub(crate) struct SecretTestArgs {
    /// The secret: `NAME` of `[secret.NAME]`
    #[arg(value_parser = SecretName::parse)]
    pub(crate) name: SecretName,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
