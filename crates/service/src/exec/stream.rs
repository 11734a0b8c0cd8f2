//! Execs whose complete output is streamed to the caller that started them, without a log.
//!
//! A message is acknowledged to the agent when the channel has room for it. So if the caller stops
//! reading, the agent pauses the process, and neither memory nor disk fills up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Caller, Command, ContainerRef, ExecEnd, ExecId};
use hotcell_store::LogPiece;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::live::LiveExec;
use super::{Message, Start};
use crate::environment::Environment;
use crate::{Abandonment, Action, Service, ServiceError};

/// Messages buffered for the caller.
const WAITING_MAX: usize = 2;

/// Longer than any exec lives, so that a write only fails when the exec ends.
const LIFE_MAX: Duration = Duration::from_hours(24 * 365 * 10);

/// An exec and the receiving end of its output. If this is dropped, the rest of the output is
/// discarded and the exec continues.
pub struct ExecStream {
    exec: Arc<LiveExec>,
    environment: Arc<Environment>,
    messages: mpsc::Receiver<Message>,
}

/// Writes to the standard input of a [`ExecStream`].
pub struct ExecStdin(Arc<LiveExec>);

/// The sending end of an [`ExecStream`].
#[derive(Debug)]
pub(super) struct StreamSink {
    /// `None` once the exec has ended.
    messages: Option<mpsc::Sender<Message>>,
    agent_seq: u64,
    last_seq: u64,
}

impl Service {
    /// Starts an exec whose complete output goes to the caller, and into no log. While the caller
    /// does not read, the exec is paused.
    ///
    /// If the server dies, the next one writes the rest of the output to a log, which lacks what
    /// was already delivered.
    pub async fn exec_stream(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        command: Command,
    ) -> Result<ExecStream, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::ExecStart, target);
        operation.note(|arguments| super::command::note(&command, arguments));
        let start = async {
            inner.accepting()?;
            let container = inner.running_container(caller, target).await?;
            inner.environment.has_room()?;
            inner.may_start(&container).await?;
            let (sender, messages) = mpsc::channel(WAITING_MAX);
            let request = Start {
                command,
                key: None,
                abandonment: Abandonment::default(),
            };
            let execs = container.execs();
            Ok(ExecStream {
                exec: execs.start_streamed(caller, request, sender).await?,
                environment: Arc::clone(&inner.environment),
                messages,
            })
        };
        operation.run(start).await
    }
}

impl ExecStream {
    /// The id with which the exec can be cancelled, signalled and resized.
    pub fn id(&self) -> &ExecId {
        &self.exec.id
    }

    /// Waits for the next piece of output; `None` after the last one.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// The writing end of standard input. Writes fail if the command was started without an open
    /// stdin.
    pub fn stdin(&self) -> ExecStdin {
        ExecStdin(Arc::clone(&self.exec))
    }

    /// Waits until the exec has ended. Unread output is discarded.
    pub async fn end(self) -> Result<ExecEnd, ServiceError> {
        drop(self.messages);
        tokio::select! {
            biased;
            end = self.exec.end() => end,
            () = self.environment.tasks.ending() => Err(ServiceError::stopping()),
        }
    }
}

impl ExecStdin {
    /// Writes all of `data`, then closes standard input if `eof` is set. Waits as long as the
    /// process takes to read it; fails if the process ends or closes its stdin.
    pub async fn write(&self, data: Bytes, eof: bool) -> Result<(), ServiceError> {
        self.0.started_or_ended().await;
        let table = self.0.table.upgrade().ok_or_else(ServiceError::stopping)?;
        let deadline = Instant::now() + LIFE_MAX;
        self.0.write(&table, data, eof, deadline).await
    }
}

impl StreamSink {
    pub(super) fn new(messages: mpsc::Sender<Message>) -> Self {
        Self {
            messages: Some(messages),
            agent_seq: 0,
            last_seq: 0,
        }
    }

    /// Waits until the channel has room. If the receiver is gone, the piece is discarded.
    pub(super) async fn append(&mut self, piece: LogPiece) {
        if let Some(messages) = &self.messages
            && let Ok(place) = messages.reserve().await
        {
            place.send(Message {
                seq: self.last_seq + 1,
                stream: piece.stream,
                unix_ms: piece.unix_ms,
                data: piece.data,
            });
        }
        self.last_seq += 1;
        self.agent_seq = piece.agent_seq;
    }

    /// Closes the channel, which tells the receiver that there is no more output.
    pub(super) fn finish(&mut self) -> u64 {
        self.messages = None;
        self.last_seq
    }

    pub(super) fn agent_seq(&self) -> u64 {
        self.agent_seq
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }
}
