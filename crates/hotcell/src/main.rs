//! The `hotcell` command.

#![forbid(unsafe_code)]

mod audit;
mod cli;
mod client;
mod config;
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
use tracing_subscriber::filter::LevelFilter;

use crate::cli::Command;
use crate::config::{Config, LoadError, Loaded};

fn main() -> ExitCode {
    // Before anything else, above all before any thread exists.
    if hotcell_runtime::is_launcher() {
        return hotcell_runtime::run_launcher();
    }
    let words: Vec<_> = std::env::args_os().collect();
    let loaded = match config::load(&words) {
        Ok(loaded) => loaded,
        Err(LoadError::Usage(usage)) => usage.exit(),
        Err(LoadError::Config { error, exit_code }) => return fail(&error, exit_code),
    };
    telemetry::start(&loaded.log, level(&loaded.command));
    let Loaded {
        command, config, ..
    } = loaded;
    dispatch(&command, &config).unwrap_or_else(|error| fail(&error, failed(&command)))
}

fn fail(error: &anyhow::Error, exit_code: u8) -> ExitCode {
    // What a container said may be a part of it.
    eprintln!("hotcell: {}", terminal::plain(&format!("{error:#}")));
    ExitCode::from(exit_code)
}

fn dispatch(command: &Command, config: &Config) -> Result<ExitCode> {
    let aliases = &config.tables.aliases;
    match command {
        Command::Serve(arguments) => serve::serve(arguments, config),
        Command::Run(arguments) => run::run(arguments, aliases),
        Command::Ps(arguments) => client::ps(arguments),
        Command::Top(arguments) => client::top(arguments),
        Command::Exec(arguments) => client::exec(arguments),
        Command::Logs(arguments) => client::logs(arguments),
        Command::Kill(arguments) => client::kill(arguments),
        Command::Token(arguments) => token::manage(arguments),
        Command::Reload(arguments) => client::reload(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Audit(arguments) => audit::run(arguments),
        Command::State(arguments) => state::manage(arguments),
        Command::Pull(arguments) => image::pull(arguments, aliases),
        Command::Image(arguments) => image::manage(arguments),
        Command::Config(arguments) => config::run(arguments, config),
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
        | Command::Reload(_)
        | Command::Doctor(_)
        | Command::Audit(_)
        | Command::State(_)
        | Command::Pull(_)
        | Command::Image(_)
        | Command::Config(_) => LevelFilter::WARN,
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
        | Command::Reload(_)
        | Command::Doctor(_)
        | Command::Audit(_)
        | Command::State(_)
        | Command::Pull(_)
        | Command::Image(_)
        | Command::Config(_) => 1,
    }
}
