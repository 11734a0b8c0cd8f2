//! `hotcell repl`: an interpreter in a container, for a person at a terminal.
//!
//! It is a client of the tools, as `hotcell exec` is: of the running server, or of one in this
//! process that ends with it. Python's inputs are cells of the session's notebook; those of other
//! languages are snippets.

mod editor;
mod input;
mod own;
mod session;
mod show;

use std::process::ExitCode;

use anyhow::{Result, bail};

use self::editor::{Input, Inputs};
use self::own::OwnServer;
use self::session::Session;
use crate::artifacts::ArtifactDirectory;
use crate::cli::ReplArgs;
use crate::client::{self, Server};
use crate::config::Tables;
use crate::signals::{SignalRequest, Signals};
use crate::{exit, terminal};

/// Inputs that mean the end in Python.
const ENDS: [&str; 4] = ["exit", "exit()", "quit", "quit()"];

/// Ctrl-C.
const INTERRUPT: u8 = 2;

const RESTART: &str = "%restart";

/// Runs what is typed until its end.
pub(crate) fn repl(arguments: &ReplArgs, tables: &Tables) -> Result<ExitCode> {
    client::block_on(run(arguments, tables))
}

async fn run(arguments: &ReplArgs, tables: &Tables) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let (own, server) = connect(arguments, tables).await?;
    let repl = Repl {
        session: Session::new(server, arguments),
        directory: ArtifactDirectory::new(&arguments.artifacts),
    };
    let stopped = repl.run(Inputs::open(arguments.lang)?, &mut signals).await;
    if let Err(error) = repl.session.end().await {
        tracing::debug!(%error, "the session is left to the server");
    }
    if let Some(own) = own {
        own.end().await;
    }
    Ok(match stopped? {
        Some(signal) => ExitCode::from(exit::SIGNALLED.saturating_add(signal)),
        None => ExitCode::SUCCESS,
    })
}

/// The running server, or one of our own.
async fn connect(arguments: &ReplArgs, tables: &Tables) -> Result<(Option<OwnServer>, Server)> {
    let state = &arguments.container.state;
    if !arguments.alone
        && let Some(server) = Server::find(state).await?
    {
        return Ok((None, server));
    }
    if let Some(name) = &arguments.session {
        bail!(
            "no server runs here that could have a session {name}; start one with `hotcell serve`, or name its --state-dir"
        );
    }
    let (own, server) = OwnServer::start(&arguments.container, tables).await?;
    Ok((Some(own), server))
}

struct Repl {
    session: Session,
    directory: ArtifactDirectory,
}

impl Repl {
    /// Runs inputs until there are no more, or until a signal ends us, whose number it returns.
    async fn run(&self, mut inputs: Inputs, signals: &mut Signals) -> Result<Option<u8>> {
        let (mut number, mut restart) = (0_u64, false);
        loop {
            let input = tokio::select! {
                input = inputs.next() => input?,
                signal = next_end(signals) => {
                    inputs.restore_terminal();
                    return Ok(Some(signal));
                }
            };
            let code = match input {
                Input::Code(code) => code,
                Input::Nothing => continue,
                Input::End => return Ok(None),
            };
            match code.trim() {
                "" => continue,
                RESTART if self.session.keeps_variables() => {
                    restart = true;
                    continue;
                }
                word if self.session.keeps_variables() && ENDS.contains(&word) => return Ok(None),
                _ => {}
            }
            number += 1;
            let handle = format!("repl-{}-{number}", std::process::id());
            let restart = std::mem::take(&mut restart);
            if let Some(signal) = self.run_one(&code, restart, &handle, signals).await? {
                return Ok(Some(signal));
            }
        }
    }

    /// Runs an input and shows what came of it. Ctrl-C interrupts it; a second one stops waiting.
    async fn run_one(
        &self,
        code: &str,
        restart: bool,
        handle: &str,
        signals: &mut Signals,
    ) -> Result<Option<u8>> {
        let mut running = std::pin::pin!(self.session.run(code, restart, handle));
        let mut is_interrupted = false;
        let ran = loop {
            let request = tokio::select! {
                ran = &mut running => break ran,
                request = signals.next() => request,
            };
            match request {
                SignalRequest::Stop(INTERRUPT) if is_interrupted => {
                    eprintln!("hotcell: it does not end yet; the next input waits for it");
                    return Ok(None);
                }
                SignalRequest::Stop(INTERRUPT) => {
                    is_interrupted = true;
                    self.session.interrupt(handle).await;
                }
                SignalRequest::Stop(signal) => return Ok(Some(signal)),
                SignalRequest::Resize => {}
            }
        };
        match ran {
            Ok(ran) => show::show(ran, &self.session, &self.directory).await?,
            Err(error) => eprintln!("hotcell: {}", terminal::plain(&format!("{error:#}"))),
        }
        Ok(None)
    }
}

/// Waits at the prompt for a signal that ends us. Ctrl-C is a key there.
async fn next_end(signals: &mut Signals) -> u8 {
    loop {
        match signals.next().await {
            SignalRequest::Stop(INTERRUPT) | SignalRequest::Resize => {}
            SignalRequest::Stop(signal) => return signal,
        }
    }
}
