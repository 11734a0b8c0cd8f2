//! Execs whose output goes straight to whoever started them, every byte of it, and to no log.
//!
//! A message is acknowledged to the agent when there is room for it here. So while nobody takes
//! messages, the agent pauses the process, and neither memory nor disk fills.

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

/// Messages that wait for whoever follows the exec.
const WAITING_MAX: usize = 2;

/// Longer than any exec lives: only its end keeps input from being taken.
const LIFE_MAX: Duration = Duration::from_hours(24 * 365 * 10);

/// An exec whose output goes to whoever holds this. Dropped, the rest of the output is
/// discarded, and the exec goes on.
pub struct ExecStream {
    exec: Arc<LiveExec>,
    environment: Arc<Environment>,
    messages: mpsc::Receiver<Message>,
}

/// Writes to the standard input of a [`ExecStream`].
pub struct ExecStdin(Arc<LiveExec>);

/// The other end of [`ExecStream`].
#[derive(Debug)]
pub(super) struct StreamSink {
    /// `None` once the exec has ended.
    messages: Option<mpsc::Sender<Message>>,
    agent_seq: u64,
    last_seq: u64,
}

impl Service {
    /// Starts an exec whose output goes to the caller alone: nothing of it is kept, and nothing
    /// is left out. While the caller takes none, the exec is paused.
    ///
    /// When the server dies, what was delivered is not in the log that the next one writes.
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
    /// The handle by which it can be cancelled, sent a signal, resized.
    pub fn id(&self) -> &ExecId {
        &self.exec.id
    }

    /// Waits for what it writes next; `None` when it will write no more.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// Its standard input, if it was started with an open one.
    pub fn stdin(&self) -> ExecStdin {
        ExecStdin(Arc::clone(&self.exec))
    }

    /// Waits for its end. Output that was not taken is discarded.
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
    /// Writes all of `data`, then closes the standard input if it is the end. Waits for as long
    /// as the process takes to read it; fails when that has ended or reads no more.
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

    /// Waits until there is room for it. When nobody follows any more, it is discarded.
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

    /// Whoever follows is told that there is no more.
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
