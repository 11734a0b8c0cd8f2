//! Standard input of execs.
//!
//! Its bytes are numbered from the start, and the agent skips bytes that it already has. So a call
//! that is repeated over another connection writes nothing twice. One caller writes at a time.

use std::convert::Infallible;

use bytes::Bytes;
use hotcell_agent_client::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_client::{Agent, AgentError, AgentRefusal, Feature};
use hotcell_domain::{ExecId, Stdin};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::call::{AgentCall, CallError, conflict};
use super::live::LiveExec;
use super::table::TableInner;
use crate::ServiceError;
use crate::backoff::Backoff;

#[derive(Debug)]
pub(super) struct Written {
    /// Bytes that the agent has accepted.
    offset: u64,
    /// Whether `offset` is exact: a call that was dropped halfway may have written more.
    is_certain: bool,
    /// Whether a caller has closed it.
    is_closed: bool,
}

impl Written {
    pub(super) fn new() -> Self {
        Self {
            offset: 0,
            is_certain: true,
            is_closed: false,
        }
    }

    /// Continues after the bytes that an earlier server wrote.
    pub(super) fn goes_on_from(&mut self, offset: u64) {
        self.offset = offset;
        self.is_certain = false;
    }

    /// Writes a chunk. After an `Err` the same chunk must be repeated before another one.
    pub(super) async fn put(
        &mut self,
        agent: &Agent,
        id: &ExecId,
        piece: Bytes,
        eof: bool,
    ) -> Result<(), AgentError> {
        self.is_certain = false;
        self.offset = agent.input(id.as_str(), self.offset, piece, eof).await?;
        self.is_certain = true;
        Ok(())
    }

    /// Finds out how much a dropped call has written. The agent serves one call at a time, so its
    /// reply to an empty call counts all bytes before it.
    pub(super) async fn settle(&mut self, agent: &Agent, id: &ExecId) -> Result<(), AgentError> {
        if self.is_certain {
            return Ok(());
        }
        self.put(agent, id, Bytes::new(), false).await
    }
}

impl LiveExec {
    /// The text that the command is started with, if the agent takes it with the start.
    pub(super) fn whole_input(&self, agent: &Agent) -> Option<Bytes> {
        match self.command.stdin() {
            Stdin::Text(text) if text.len() <= CHUNK_BYTES_MAX && agent.has(Feature::Input) => {
                Some(Bytes::copy_from_slice(text.as_bytes()))
            }
            Stdin::Empty | Stdin::Open | Stdin::Text(_) | Stdin::TextThenOpen(_) => None,
        }
    }

    /// Sends the text that the command was started with. Returns only when the connection is lost;
    /// the next call continues from there.
    pub(super) async fn feed(&self, agent: &Agent) -> Result<Infallible, AgentError> {
        if let Some(text) = self.command.stdin().text()
            && !self.is_fed()
        {
            match self.feed_text(agent, text).await {
                // The process has closed its stdin or has ended; its exit event follows.
                Ok(()) | Err(AgentError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        std::future::pending().await
    }

    async fn feed_text(&self, agent: &Agent, text: &str) -> Result<(), AgentError> {
        let mut written = self.written.lock().await;
        written.settle(agent, &self.id).await?;
        let mut rest = text.as_bytes();
        rest = rest
            .get(usize::try_from(written.offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let closes = !self.command.stdin().is_open();
        loop {
            let (piece, after) = rest.split_at(rest.len().min(CHUNK_BYTES_MAX));
            let is_last = after.is_empty();
            let piece = Bytes::copy_from_slice(piece);
            written
                .put(agent, &self.id, piece, closes && is_last)
                .await?;
            if is_last {
                return Ok(());
            }
            rest = after;
        }
    }

    /// Writes all of `data`, reconnecting as often as needed, until the deadline.
    pub(super) async fn write(
        &self,
        table: &TableInner,
        data: Bytes,
        eof: bool,
        deadline: Instant,
    ) -> Result<(), ServiceError> {
        // Checked before taking the lock: the task that sends the initial text holds the lock for
        // as long as that takes.
        if !self.command.stdin().is_open() {
            return Err(closed(self.command.stdin()));
        }
        let total = data.len();
        let mut written = self.turn(table, deadline, total).await?;
        let begin = written.offset;
        let mut rest = data;
        loop {
            let piece = rest.split_to(rest.len().min(CHUNK_BYTES_MAX));
            let is_last = rest.is_empty();
            let put = AgentCall::Put(&mut written, piece, eof && is_last);
            let put = self.call(table, deadline, put).await;
            put.map_err(|error| not_taken(error, written.offset - begin, total))?;
            if is_last {
                written.is_closed |= eof;
                return Ok(());
            }
        }
    }
}

impl LiveExec {
    /// Waits for the lock: other callers and the initial text come first.
    async fn turn(
        &self,
        table: &TableInner,
        deadline: Instant,
        total: usize,
    ) -> Result<MutexGuard<'_, Written>, ServiceError> {
        let first = self.command.stdin().text().map_or(0, str::len) as u64;
        let mut backoff = Backoff::new();
        loop {
            let lock = tokio::time::timeout_at(deadline, self.written.lock());
            let mut written = lock.await.map_err(|_| unread(0, total))?;
            if written.is_closed {
                return Err(closed(&Stdin::Open));
            }
            let settled = self
                .call(table, deadline, AgentCall::Settle(&mut written))
                .await;
            settled.map_err(|error| not_taken(error, 0, total))?;
            if written.offset >= first {
                return Ok(written);
            }
            drop(written);
            let pause = tokio::time::timeout_at(deadline, backoff.wait()).await;
            pause.map_err(|_| unread(0, total))?;
        }
    }
}

fn not_taken(error: CallError, taken: u64, total: usize) -> ServiceError {
    match error {
        CallError::TooLate => unread(taken, total),
        CallError::Ended => conflict(format!(
            "the exec ended when it had taken {taken} of {total} bytes of its input"
        )),
        CallError::Refused(AgentError::Refused {
            refusal: AgentRefusal::Conflict { .. },
            ..
        }) => conflict(format!(
            "the exec's standard input is closed; it took {taken} of {total} bytes"
        )),
        error @ CallError::Refused(_) => error.into_service("write to its standard input"),
    }
}

fn unread(taken: u64, total: usize) -> ServiceError {
    ServiceError::Deadline {
        reason: format!(
            "the exec does not read its standard input; about {taken} of {total} bytes were taken"
        ),
    }
}

fn closed(stdin: &Stdin) -> ServiceError {
    conflict(match stdin {
        Stdin::Open | Stdin::TextThenOpen(_) => "the exec's standard input was closed by eof",
        Stdin::Empty => {
            "the exec was started without standard input; start it with keep_stdin_open=true to send it some"
        }
        Stdin::Text(_) => {
            "the exec's standard input was given when it was started; start it with keep_stdin_open=true to send it more"
        }
    })
}
