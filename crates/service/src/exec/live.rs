//! A queued or running exec.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use hotcell_agent_client::{Changes, Cleanup};
use hotcell_domain::{Command, ContainerId, ExecEnd, ExecId, ExecStatus, Name, Principal};
use hotcell_store::{ExecRow, listed_argv};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::stdin::Written;
use super::stream::StreamSink;
use super::table::TableInner;
use super::{ExecSummary, Message};
use crate::{Abandonment, ServiceError};

/// An exec that has not ended, or has just ended.
pub(crate) struct LiveExec {
    pub(super) id: ExecId,
    pub(super) container: ContainerId,
    pub(super) principal: Principal,
    pub(super) key: Option<Name>,
    pub(super) command: Command,
    pub(super) created_unix_ms: u64,
    /// The container's OOM kill counter when the exec was requested.
    pub(super) oom_kills_before: u64,
    /// What the agent does after it, beyond ending background processes.
    pub(super) cleanup: Option<Cleanup>,
    /// What its cleanup found, once it has ended.
    changes: OnceLock<Changes>,
    /// The state of standard input. Whoever holds the lock writes.
    pub(super) written: tokio::sync::Mutex<Written>,
    pub(super) table: Weak<TableInner>,
    progress: watch::Sender<Progress>,
    is_cancelled: watch::Sender<bool>,
    is_over_disk: AtomicBool,
    /// Whether the agent got all of its standard input with the start.
    is_fed: AtomicBool,
    /// Opened when what it needs is in the container; taken when it is about to start.
    gate: Mutex<Option<oneshot::Receiver<()>>>,
    /// Receives the output if the exec has no log; taken when the exec starts.
    stream: Mutex<Option<mpsc::Sender<Message>>>,
    has_log: bool,
    abandonment: Abandonment,
    /// When it was queued.
    queued: Instant,
}

/// The current state of an exec.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) status: ExecStatus,
    pub(super) has_started: bool,
    /// The sequence number of the newest message.
    pub(super) last_seq: u64,
    /// Whether `last_seq` includes what an earlier server wrote to the log.
    pub(super) is_counted: bool,
    /// Bytes of output since this server began to follow it.
    pub(super) bytes: u64,
    /// How it ended. Set only after the end is in the store and the last byte in the log.
    pub(super) end: Option<ExecEnd>,
    /// Why it is stalled, if something outside of it is the cause.
    pub(super) stalled: Option<&'static str>,
}

impl Progress {
    /// Whether the log is known to be empty and need not be read.
    pub(super) fn wrote_nothing(&self) -> bool {
        self.is_counted && self.last_seq == 0
    }
}

impl LiveExec {
    pub(crate) fn id(&self) -> &ExecId {
        &self.id
    }

    /// Principal, exec and container, for the audit log.
    pub(super) fn ids(&self) -> (&str, &str, &str) {
        (
            self.principal.as_str(),
            self.id.as_str(),
            self.container.as_str(),
        )
    }

    /// A queued exec without output. Its output goes to `stream`, or into its log if there is none.
    pub(super) fn new(
        row: ExecRow,
        table: Weak<TableInner>,
        stream: Option<mpsc::Sender<Message>>,
        abandonment: Abandonment,
    ) -> Self {
        Self {
            id: row.id,
            container: row.container,
            principal: row.principal,
            key: row.key,
            command: row.command,
            created_unix_ms: row.created_unix_ms,
            oom_kills_before: row.oom_kills_before,
            cleanup: None,
            changes: OnceLock::new(),
            written: tokio::sync::Mutex::new(Written::new()),
            table,
            progress: watch::Sender::new(Progress {
                status: ExecStatus::Queued,
                has_started: false,
                last_seq: 0,
                is_counted: true,
                bytes: 0,
                end: None,
                stalled: None,
            }),
            is_cancelled: watch::Sender::new(false),
            is_over_disk: AtomicBool::new(false),
            is_fed: AtomicBool::new(false),
            gate: Mutex::default(),
            has_log: stream.is_none(),
            stream: Mutex::new(stream),
            abandonment,
            queued: Instant::now(),
        }
    }

    /// Records that the agent has all of its standard input.
    pub(super) fn set_fed(&self) {
        self.is_fed.store(true, Ordering::Release);
    }

    pub(super) fn is_fed(&self) -> bool {
        self.is_fed.load(Ordering::Acquire)
    }

    /// Lets the agent clean up after it.
    pub(super) fn with_cleanup(mut self, cleanup: Option<Cleanup>) -> Self {
        self.cleanup = cleanup;
        self
    }

    /// Has it start when the gate opens; it is cancelled if the gate is dropped.
    pub(super) fn behind(self, gate: oneshot::Receiver<()>) -> Self {
        Self {
            gate: Mutex::new(Some(gate)),
            ..self
        }
    }

    /// Waits until it may start; false if it may not any more.
    pub(super) async fn may_begin(&self) -> bool {
        let gate = self.gate.lock();
        let gate = gate.unwrap_or_else(PoisonError::into_inner).take();
        let Some(gate) = gate else { return true };
        tokio::select! {
            opened = gate => opened.is_ok(),
            () = self.until_cancelled() => false,
        }
    }

    /// Records what its cleanup found.
    pub(super) fn set_changes(&self, changes: Changes) {
        // A second exit of the same exec tells the same.
        let _ = self.changes.set(changes);
    }

    /// What its cleanup found; `None` if it has not ended, or the agent did no cleanup.
    pub(crate) fn changes(&self) -> Option<&Changes> {
        self.changes.get()
    }

    /// An exec that an earlier server recorded. Its log is not open yet, so the number of messages
    /// in it is unknown.
    pub(super) fn recovered(row: ExecRow, table: Weak<TableInner>) -> Self {
        let exec = Self::new(row, table, None, Abandonment::default());
        exec.progress
            .send_modify(|progress| progress.is_counted = false);
        exec
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(super) fn status(&self) -> ExecStatus {
        self.progress.borrow().status
    }

    /// How long it has been queued.
    pub(super) fn waited(&self) -> Duration {
        self.queued.elapsed()
    }

    /// Marks it as running: it has a slot.
    pub(super) fn runs(&self) {
        self.progress
            .send_modify(|progress| progress.status = ExecStatus::Running);
    }

    /// Records that the agent has started it.
    pub(super) fn set_started(&self) {
        self.progress.send_if_modified(|progress| {
            let is_news = !progress.has_started;
            progress.has_started = true;
            is_news
        });
    }

    /// Waits until the agent has started it, or it has ended without a start.
    pub(super) async fn started_or_ended(&self) {
        let mut progress = self.progress();
        let started = progress.wait_for(|progress| progress.has_started || progress.end.is_some());
        // We hold the sender, so the channel is open.
        let _ = started.await;
    }

    /// Whether its output goes to a log.
    pub(super) fn has_log(&self) -> bool {
        self.has_log
    }

    /// Takes the stream for the output; `None` if it has a log, or on a second call.
    pub(super) fn take_stream(&self) -> Option<StreamSink> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.take().map(StreamSink::new)
    }

    /// Records that output was stored.
    pub(super) fn wrote(&self, last_seq: u64, bytes: usize) {
        self.progress.send_modify(|progress| {
            debug_assert!(
                last_seq >= progress.last_seq,
                "message {last_seq} is stored after {}",
                progress.last_seq
            );
            progress.last_seq = last_seq;
            progress.is_counted = true;
            progress.bytes += bytes as u64;
            progress.stalled = None;
        });
    }

    /// Sets or clears the reason why it is stalled.
    pub(super) fn set_stalled(&self, reason: Option<&'static str>) {
        self.progress.send_if_modified(|progress| {
            let is_news = progress.stalled != reason;
            progress.stalled = reason;
            is_news
        });
    }

    /// Publishes the end, which is already in the store.
    pub(super) fn ended(&self, end: ExecEnd, last_seq: u64) {
        self.progress.send_modify(|progress| {
            progress.status = end.status;
            progress.last_seq = progress.last_seq.max(last_seq);
            progress.end = Some(end);
            progress.stalled = None;
        });
    }

    /// Waits until it has ended; returns the final status.
    pub(super) async fn until_ended(&self) -> ExecStatus {
        let mut progress = self.progress();
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        // We hold the sender, so the channel is open.
        ended.map_or(ExecStatus::Lost, |progress| progress.status)
    }

    /// Waits until it has ended; returns how.
    pub(crate) async fn end(&self) -> Result<ExecEnd, ServiceError> {
        let mut progress = self.progress();
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        let end = ended.ok().and_then(|progress| progress.end.clone());
        end.ok_or_else(ServiceError::stopping)
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.send_replace(true);
    }

    /// Cancels it because its container exceeds its disk limit. A queued exec is left alone: it
    /// writes nothing.
    pub(super) fn end_over_disk(&self) {
        if self.status() == ExecStatus::Running && !self.is_cancelled() {
            self.is_over_disk.store(true, Ordering::Release);
            self.cancel();
        }
    }

    /// Whether it was cancelled because its container exceeded its disk limit.
    pub(super) fn is_over_disk(&self) -> bool {
        self.is_over_disk.load(Ordering::Acquire)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        *self.is_cancelled.borrow() || self.abandonment.is_abandoned()
    }

    pub(super) async fn until_cancelled(&self) {
        let mut is_cancelled = self.is_cancelled.subscribe();
        tokio::select! {
            _ = is_cancelled.wait_for(|is_cancelled| *is_cancelled) => {}
            () = self.abandonment.abandoned() => {}
        }
    }

    pub(super) fn summary(&self) -> ExecSummary {
        let progress = self.progress.borrow();
        ExecSummary {
            id: self.id.clone(),
            principal: self.principal.clone(),
            container: self.container.clone(),
            argv: listed_argv(self.command.argv()),
            status: progress.status,
            output_bytes: Some(progress.bytes),
            created_unix_ms: self.created_unix_ms,
            ended_unix_ms: None,
            end: progress.end.clone(),
        }
    }
}
