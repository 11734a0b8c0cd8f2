//! `hotcell run`: one command in a fresh container, for people.

mod container;
mod follow;
mod outcome;
mod stdin;
mod what;

use std::process::ExitCode;

use anyhow::{Context, Result};

use self::container::Running;
use self::outcome::Outcome;
use self::what::What;
use crate::cli::RunArgs;
use crate::terminal::{RawTerminal, Screen};

/// Runs what was asked for and answers with its exit code.
pub(crate) fn run(arguments: &RunArgs) -> Result<ExitCode> {
    let what = What::read(arguments)?;
    // Two threads: one may be writing to a slow reader of ours while the other
    // listens for Ctrl-C.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let outcome = runtime.block_on(run_in_container(arguments, what));
    // A read of our stdin cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    let outcome = outcome?;
    if arguments.json {
        outcome.print_json()?;
    }
    outcome.explain();
    Ok(outcome.exit_code())
}

async fn run_in_container(arguments: &RunArgs, what: What) -> Result<Outcome> {
    let running = Running::create(arguments).await?;
    let outcome = run_command(arguments, &running, what).await;
    let removed = running.remove().await;
    let outcome = outcome?;
    removed?;
    Ok(outcome)
}

async fn run_command(arguments: &RunArgs, running: &Running, what: What) -> Result<Outcome> {
    let command = what.prepare(arguments, running).await?;
    let _raw = if arguments.tty {
        RawTerminal::enter()
    } else {
        None
    };
    // A terminal inside speaks to ours: that is what it is for.
    let screen = (!arguments.json).then(|| Screen::new(arguments.raw || arguments.tty));
    follow::follow(running, &command, screen).await
}
