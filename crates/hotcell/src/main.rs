//! The `hotcell` command.

#![forbid(unsafe_code)]

mod cli;
mod doctor;
mod id;
mod run;
mod state;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// Hotcell itself could not do it, as opposed to the command in the container.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    // Before anything else, above all before any thread exists.
    if hotcell_runtime::is_launcher() {
        return hotcell_runtime::run_launcher();
    }
    let cli = Cli::parse();
    telemetry::start();
    let outcome = match cli.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("hotcell: {error:#}");
        ExitCode::from(FAILED)
    })
}
