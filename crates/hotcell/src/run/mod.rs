//! `hotcell run`: one command in a fresh container, for people.
//!
//! It runs on a service of its own, and its output goes straight to our stdout.

mod artifacts;
mod container;
mod follow;
mod outcome;
mod program;
mod stdin;

use std::process::ExitCode;

use anyhow::{Context, Result};

use self::container::RunContainer;
use self::outcome::Outcome;
use self::program::Program;
use crate::cli::RunArgs;
use crate::config::Tables;
use crate::temporary::StartingEngine;
use crate::terminal::{RawTerminal, Screen};

/// Runs what was asked for and returns its exit code.
pub(crate) fn run(arguments: &RunArgs, tables: &Tables) -> Result<ExitCode> {
    let program = Program::read(arguments)?;
    // The launcher is another process: it starts while we do the rest.
    let engine = StartingEngine::start(&arguments.container)?;
    // One thread: whatever blocks (stdin, stdout, the engine, the database) has threads of its
    // own, and every hand-over to another one costs more than the work.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let outcome = runtime.block_on(run_in_container(arguments, tables, engine, program));
    // A read of our stdin cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    let outcome = outcome?;
    if arguments.json {
        outcome.print_json()?;
    }
    outcome.explain();
    Ok(outcome.exit_code())
}

async fn run_in_container(
    arguments: &RunArgs,
    tables: &Tables,
    engine: StartingEngine,
    program: Program,
) -> Result<Outcome> {
    let container = RunContainer::create(&arguments.container, tables, engine).await?;
    let outcome = run_command(arguments, &container, program).await;
    let removed = container.remove().await;
    let outcome = outcome?;
    removed?;
    Ok(outcome)
}

async fn run_command(
    arguments: &RunArgs,
    container: &RunContainer,
    program: Program,
) -> Result<Outcome> {
    let command = program.prepare(arguments, container).await?;
    let _raw = if arguments.tty {
        RawTerminal::enter()
    } else {
        None
    };
    // With a terminal in the container, its escape sequences are meant for ours.
    let screen = (!arguments.json).then(|| Screen::new(arguments.raw || arguments.tty));
    let mut outcome = follow::follow(container, command, screen).await?;
    outcome.artifacts = artifacts::save(container, &arguments.artifacts).await?;
    Ok(outcome)
}
