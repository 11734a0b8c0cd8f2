//! The `hotcell` command.

#![forbid(unsafe_code)]

mod artifacts;
mod audit;
mod cli;
mod client;
mod completions;
mod config;
mod doctor;
mod egress;
mod engines;
mod exit;
mod image;
mod init;
mod mcp_config;
#[cfg(test)]
mod reference;
mod repl;
mod run;
mod secret;
mod serve;
mod signals;
mod state;
mod telemetry;
mod temporary;
mod terminal;
mod token;
mod upstream;
mod whole_file;

use std::process::ExitCode;

use anyhow::Result;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::Command;
use crate::config::{Config, LoadError, Loaded};

fn main() -> ExitCode {
    // Before anything else, above all before there is a second thread.
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
    // The error may contain text from a container.
    eprintln!("hotcell: {}", terminal::plain(&format!("{error:#}")));
    ExitCode::from(exit_code)
}

fn dispatch(command: &Command, config: &Config) -> Result<ExitCode> {
    let aliases = &config.tables.aliases;
    match command {
        Command::Serve(arguments) => serve::serve(arguments, config),
        Command::Run(arguments) => run::run(arguments, &config.tables),
        Command::Repl(arguments) => repl::repl(arguments, &config.tables),
        Command::Ps(arguments) => client::ps(arguments),
        Command::Top(arguments) => client::top(arguments),
        Command::Exec(arguments) => client::exec(arguments),
        Command::Logs(arguments) => client::logs(arguments),
        Command::Kill(arguments) => client::kill(arguments),
        Command::Forward(arguments) => client::forward(arguments),
        Command::Token(arguments) => token::manage(arguments),
        Command::Reload(arguments) => client::reload(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Audit(arguments) => audit::run(arguments),
        Command::Egress(arguments) => egress::manage(arguments, &config.tables),
        Command::Secret(arguments) => secret::manage(arguments, &config.tables),
        Command::State(arguments) => state::manage(arguments),
        Command::Pull(arguments) => image::pull(arguments, aliases),
        Command::Image(arguments) => image::manage(arguments),
        Command::Upstream(arguments) => upstream::manage(arguments, config),
        Command::Memory(arguments) => client::memory(arguments),
        Command::Config(arguments) => config::run(arguments, config),
        Command::Init(arguments) => init::run(arguments),
        Command::Completions(arguments) => completions::script(arguments),
        Command::Complete(arguments) => completions::complete(arguments),
        Command::McpConfig(arguments) => mcp_config::run(arguments, config.file.as_deref()),
    }
}

/// The default log level.
fn level(command: &Command) -> LevelFilter {
    match command {
        Command::Serve(_) => LevelFilter::INFO,
        Command::Run(_)
        | Command::Repl(_)
        | Command::Ps(_)
        | Command::Top(_)
        | Command::Exec(_)
        | Command::Logs(_)
        | Command::Kill(_)
        | Command::Forward(_)
        | Command::Token(_)
        | Command::Reload(_)
        | Command::Doctor(_)
        | Command::Audit(_)
        | Command::Egress(_)
        | Command::Secret(_)
        | Command::State(_)
        | Command::Pull(_)
        | Command::Image(_)
        | Command::Upstream(_)
        | Command::Memory(_)
        | Command::Config(_)
        | Command::McpConfig(_)
        | Command::Init(_)
        | Command::Completions(_)
        | Command::Complete(_) => LevelFilter::WARN,
    }
}

/// The exit code if Hotcell itself fails. For commands that exit with the code of a container's
/// command, it must be different from those.
fn failed(command: &Command) -> u8 {
    match command {
        Command::Run(_) | Command::Exec(_) => exit::FAILED,
        Command::Serve(_)
        | Command::Repl(_)
        | Command::Ps(_)
        | Command::Top(_)
        | Command::Logs(_)
        | Command::Kill(_)
        | Command::Forward(_)
        | Command::Token(_)
        | Command::Reload(_)
        | Command::Doctor(_)
        | Command::Audit(_)
        | Command::Egress(_)
        | Command::Secret(_)
        | Command::State(_)
        | Command::Pull(_)
        | Command::Image(_)
        | Command::Upstream(_)
        | Command::Memory(_)
        | Command::Config(_)
        | Command::McpConfig(_)
        | Command::Init(_)
        | Command::Completions(_)
        | Command::Complete(_) => 1,
    }
}
