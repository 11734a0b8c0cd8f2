//! Follows the command: forwards its output to ours, and our signals to it.

use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_domain::{Caller, Command, ExecId};
use hotcell_service::{ExecStream, Input, Service, ServiceError, Signal};

use super::container::RunContainer;
use super::outcome::Outcome;
use super::stdin;
use crate::exit::BROKEN_PIPE;
use crate::signals::{SignalRequest, Signals, Stop};
use crate::terminal::{self, OutputSink, Screen};

/// Starts the command and waits until it has ended. Its output goes to `screen`; without one it is
/// captured.
pub(super) async fn follow(
    container: &RunContainer,
    command: Command,
    screen: Option<Screen>,
) -> Result<Outcome> {
    let signals = Signals::listen()?;
    let (program, timeout) = (command.argv()[0].clone(), command.timeout());
    let mut exec = container.start(command).await?;
    let control = Control {
        service: container.service().clone(),
        caller: container.caller().clone(),
        id: exec.id().clone(),
        stop: Arc::new(Stop::default()),
    };
    let stdin = tokio::spawn(stdin::pass_on(exec.stdin()));
    let listener = tokio::spawn(control.clone().obey(signals));
    let mut sink = OutputSink::new(screen);
    pass_on_output(&mut exec, &mut sink, &control).await?;
    let end = exec.end().await.context("follow the command")?;
    // The command has ended, whether or not anybody still reads its output.
    let _ = sink.finish().await;
    stdin.abort();
    listener.abort();
    Ok(Outcome {
        program,
        end,
        stopped_by: control.stop.by(),
        captured: sink.captured(),
        limits: container.limits().to_vec(),
        timeout,
        artifacts: Vec::new(),
    })
}

/// Forwards output until there is no more. Ends the command when our reader goes away.
async fn pass_on_output(
    exec: &mut ExecStream,
    sink: &mut OutputSink,
    control: &Control,
) -> Result<()> {
    while let Some(message) = exec.next().await {
        match sink.take(message.stream, &message.data).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                *sink = OutputSink::Nowhere;
                tokio::spawn(control.clone().end(BROKEN_PIPE));
            }
            Err(error) => return Err(error).context("write the command's output"),
        }
    }
    Ok(())
}

/// Controls the command while its output is forwarded.
#[derive(Clone)]
struct Control {
    service: Service,
    caller: Caller,
    id: ExecId,
    stop: Arc<Stop>,
}

impl Control {
    /// Forwards signals that we receive.
    async fn obey(self, mut signals: Signals) {
        loop {
            match signals.next().await {
                SignalRequest::Stop(number) => {
                    tokio::spawn(self.clone().end(number));
                }
                SignalRequest::Resize => {
                    let size = terminal::size();
                    let resize = Input {
                        resize: Some((size.rows, size.cols)),
                        ..Input::default()
                    };
                    // Fails without a terminal, which is fine.
                    let _ = self.input(resize).await;
                }
            }
        }
    }

    /// Ends all its processes: gracefully the first time, at once the second.
    async fn end(self, signal: u8) {
        let ended = if self.stop.ask(signal) {
            let cancelled = self.service.exec_cancel(&self.caller, &self.id);
            cancelled.await.map(drop)
        } else {
            let kill = Input {
                signal: Some(Signal::Kill),
                ..Input::default()
            };
            self.input(kill).await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the command could not be ended");
        }
    }

    async fn input(&self, input: Input) -> Result<(), ServiceError> {
        self.service.exec_input(&self.caller, &self.id, input).await
    }
}
