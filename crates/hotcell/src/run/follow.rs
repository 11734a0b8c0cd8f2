//! Following the command: its output to ours, our signals to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hotcell_agent_client::{Agent, Command, Event, EventKind, Exit, Follow, Output};

use super::container::Running;
use super::outcome::{Captured, Outcome};
use super::stdin;
use crate::exit::BROKEN_PIPE;
use crate::signals::{SignalRequest, Signals, Stop};
use crate::terminal::{self, Screen};

/// From TERM to KILL, for the timeout and for Ctrl-C.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// There is one exec in this container.
const EXEC_ID: &str = "run";

/// Starts the command and stays until it has ended. Its output goes to `screen`; without one
/// it is kept.
pub(super) async fn follow(
    running: &Running,
    command: &Command,
    screen: Option<Screen>,
) -> Result<Outcome> {
    let agent = running.agent();
    let signals = Signals::listen()?;
    let mut events = agent
        .start(EXEC_ID, command)
        .await
        .context("start the command")?;
    let stdin = tokio::spawn(stdin::pass_on(agent.clone(), EXEC_ID));
    let stop = Arc::new(Stop::default());
    let listener = tokio::spawn(obey(signals, agent.clone(), Arc::clone(&stop)));
    let mut sink = screen.map_or_else(|| Sink::Memory(Captured::default()), Sink::Ours);
    let exit = until_exit(&mut events, &mut sink, agent, &stop).await?;
    if let Sink::Ours(screen) = &mut sink {
        // The command has ended, whether or not anybody still reads what it wrote.
        let _ = screen.finish().await;
    }
    stdin.abort();
    listener.abort();
    Ok(Outcome {
        command: command
            .argv
            .first()
            .map(|name| String::from_utf8_lossy(name).into_owned()),
        exit,
        stopped_by: stop.by(),
        out_of_memory: running.ran_out_of_memory().await,
        captured: sink.captured(),
        enforced: running.enforced(),
        timeout: command.timeout,
    })
}

async fn until_exit(
    events: &mut Follow,
    sink: &mut Sink,
    agent: &Agent,
    stop: &Stop,
) -> Result<Exit> {
    loop {
        let Some(event) = events.next().await.context("follow the command")? else {
            bail!("the container ended before the command did");
        };
        let Event { seq, kind, .. } = event;
        match kind {
            EventKind::Started(_) => {}
            EventKind::Exit(exit) => return Ok(exit),
            EventKind::Output(stream, data) => match sink.take(stream, &data).await {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    *sink = Sink::Nowhere;
                    tokio::spawn(cancel(agent.clone(), grace(stop.ask(BROKEN_PIPE))));
                }
                Err(error) => return Err(error).context("write the command's output"),
            },
        }
        events.ack(seq);
    }
}

/// Passes on what signals to us ask for.
async fn obey(mut signals: Signals, agent: Agent, stop: Arc<Stop>) {
    loop {
        match signals.next().await {
            SignalRequest::Stop(number) => {
                tokio::spawn(cancel(agent.clone(), grace(stop.ask(number))));
            }
            SignalRequest::Resize => {
                // Without a terminal there is nothing to resize.
                let _ = agent.resize(EXEC_ID, terminal::size()).await;
            }
        }
    }
}

/// How long the command gets to end by itself.
fn grace(is_first: bool) -> Duration {
    if is_first { GRACE } else { Duration::ZERO }
}

async fn cancel(agent: Agent, grace: Duration) {
    if let Err(error) = agent.cancel(EXEC_ID, grace).await {
        tracing::debug!(%error, "the command could not be cancelled");
    }
}

/// Where output goes.
enum Sink {
    Ours(Screen),
    Memory(Captured),
    /// Our reader went away.
    Nowhere,
}

impl Sink {
    async fn take(&mut self, stream: Output, data: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Memory(captured) => {
                captured.take(stream, data);
                Ok(())
            }
            Self::Ours(screen) => screen.write(stream == Output::Stderr, data).await,
            Self::Nowhere => Ok(()),
        }
    }

    fn captured(self) -> Option<Captured> {
        match self {
            Self::Memory(captured) => Some(captured),
            Self::Ours(_) | Self::Nowhere => None,
        }
    }
}
