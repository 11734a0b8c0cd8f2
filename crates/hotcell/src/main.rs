//! The `hotcell` command.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod audit;
mod cli;
mod client;
mod doctor;
mod engines;
mod exit;
mod image;
mod run;
mod serve;
mod signals;
mod state;
mod telemetry;
mod terminal;
mod token;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    // Before anything else, above all before any thread exists.
    if hotcell_runtime::is_launcher() {
        return hotcell_runtime::run_launcher();
    }
    let command = Cli::parse().into_command();
    let failed = failed(&command);
    dispatch(&command).unwrap_or_else(|error| {
        // What a container said may be a part of it.
        eprintln!("hotcell: {}", terminal::plain(&format!("{error:#}")));
        ExitCode::from(failed)
    })
}

fn dispatch(command: &Command) -> Result<ExitCode> {
    telemetry::start(level(command))?;
    match command {
        Command::Serve(arguments) => serve::serve(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Ps(arguments) => client::ps(arguments),
        Command::Top(arguments) => client::top(arguments),
        Command::Exec(arguments) => client::exec(arguments),
        Command::Logs(arguments) => client::logs(arguments),
        Command::Kill(arguments) => client::kill(arguments),
        Command::Token(arguments) => token::manage(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Audit(arguments) => audit::run(arguments),
        Command::Pull(arguments) => image::pull(arguments),
        Command::Image(arguments) => image::manage(arguments),
    }
}

/// How much is logged if nobody says it.
fn level(command: &Command) -> LevelFilter {
    match command {
        Command::Serve(_) => LevelFilter::INFO,
        Command::Run(_)
        | Command::Ps(_)
        | Command::Top(_)
        | Command::Exec(_)
        | Command::Logs(_)
        | Command::Kill(_)
        | Command::Token(_)
        | Command::Doctor(_)
        | Command::Audit(_)
        | Command::Pull(_)
        | Command::Image(_) => LevelFilter::WARN,
    }
}

/// What we exit with when Hotcell itself fails: where the command's own exit code is ours,
/// one that tells the two apart.
fn failed(command: &Command) -> u8 {
    match command {
        Command::Run(_) | Command::Exec(_) => exit::FAILED,
        Command::Serve(_)
        | Command::Ps(_)
        | Command::Top(_)
        | Command::Logs(_)
        | Command::Kill(_)
        | Command::Token(_)
        | Command::Doctor(_)
        | Command::Audit(_)
        | Command::Pull(_)
        | Command::Image(_) => 1,
    }
}
