//! An exec that waits or runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use hotcell_domain::{Command, ContainerId, ExecEnd, ExecId, ExecStatus, Name, Principal};
use hotcell_store::{ExecRow, listed_argv};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::stdin::Written;
use super::stream::StreamSink;
use super::table::TableInner;
use super::{ExecSummary, Message};
use crate::{Abandonment, ServiceError};

/// An exec that has not ended, or has just done so.
pub(crate) struct LiveExec {
    pub(super) id: ExecId,
    pub(super) container: ContainerId,
    pub(super) principal: Principal,
    pub(super) key: Option<Name>,
    pub(super) command: Command,
    pub(super) created_unix_ms: u64,
    /// Processes that had been killed for want of memory before it was asked for.
    pub(super) oom_kills_before: u64,
    /// What was written to its standard input. Whoever holds it writes.
    pub(super) written: tokio::sync::Mutex<Written>,
    pub(super) table: Weak<TableInner>,
    progress: watch::Sender<Progress>,
    is_cancelled: watch::Sender<bool>,
    is_over_disk: AtomicBool,
    /// Where its output is streamed to, if it has no log; taken when it starts.
    stream: Mutex<Option<mpsc::Sender<Message>>>,
    has_log: bool,
    abandonment: Abandonment,
    /// Since when it waits.
    queued: Instant,
}

/// How far an exec is.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) status: ExecStatus,
    /// Whether the agent has started it.
    pub(super) has_started: bool,
    /// The number of its newest message.
    pub(super) last_seq: u64,
    /// Whether `last_seq` counts what an earlier server wrote into the log too.
    pub(super) is_counted: bool,
    /// Bytes of output that came since this server follows it.
    pub(super) bytes: u64,
    /// How it ended. Once it is here it is in the store, and the log has its last byte.
    pub(super) end: Option<ExecEnd>,
    /// What holds it up, if something outside of it does.
    pub(super) stalled: Option<&'static str>,
}

impl Progress {
    /// Whether there is nothing in the log, so that it need not be read.
    pub(super) fn wrote_nothing(&self) -> bool {
        self.is_counted && self.last_seq == 0
    }
}

impl LiveExec {
    /// Whose it is, which it is and where it runs.
    pub(super) fn ids(&self) -> (&str, &str, &str) {
        (
            self.principal.as_str(),
            self.id.as_str(),
            self.container.as_str(),
        )
    }

    /// One that waits and has written nothing. Its output goes to `stream`, or without one into
    /// its log.
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
            has_log: stream.is_none(),
            stream: Mutex::new(stream),
            abandonment,
            queued: Instant::now(),
        }
    }

    /// The same for one of an earlier server's, whose log is not open yet.
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

    /// How long it has waited for a place.
    pub(super) fn waited(&self) -> Duration {
        self.queued.elapsed()
    }

    /// It has a place.
    pub(super) fn runs(&self) {
        self.progress
            .send_modify(|progress| progress.status = ExecStatus::Running);
    }

    /// The agent has started it.
    pub(super) fn set_started(&self) {
        self.progress.send_if_modified(|progress| {
            let is_news = !progress.has_started;
            progress.has_started = true;
            is_news
        });
    }

    /// Waits until the agent has started it, or it has ended without.
    pub(super) async fn started_or_ended(&self) {
        let mut progress = self.progress();
        let started = progress.wait_for(|progress| progress.has_started || progress.end.is_some());
        // The sender is ours, so it is not gone.
        let _ = started.await;
    }

    /// Whether its output goes to a log.
    pub(super) fn has_log(&self) -> bool {
        self.has_log
    }

    /// Where its output is streamed to, for the first who asks.
    pub(super) fn take_stream(&self) -> Option<StreamSink> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.take().map(StreamSink::new)
    }

    /// It wrote.
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

    /// Something outside of it holds it up, or no longer does.
    pub(super) fn set_stalled(&self, reason: Option<&'static str>) {
        self.progress.send_if_modified(|progress| {
            let is_news = progress.stalled != reason;
            progress.stalled = reason;
            is_news
        });
    }

    /// It has ended, and the store knows.
    pub(super) fn ended(&self, end: ExecEnd, last_seq: u64) {
        self.progress.send_modify(|progress| {
            progress.status = end.status;
            progress.last_seq = progress.last_seq.max(last_seq);
            progress.end = Some(end);
            progress.stalled = None;
        });
    }

    /// Waits for the end.
    pub(super) async fn until_ended(&self) -> ExecStatus {
        let mut progress = self.progress();
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        // The sender is ours, so it is not gone.
        ended.map_or(ExecStatus::Lost, |progress| progress.status)
    }

    /// Waits for the end, and tells how it was.
    pub(super) async fn end(&self) -> Result<ExecEnd, ServiceError> {
        let mut progress = self.progress();
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        let end = ended.ok().and_then(|progress| progress.end.clone());
        end.ok_or_else(ServiceError::stopping)
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.send_replace(true);
    }

    /// Ends it because its container uses more of the disk than it may, unless it has not begun.
    pub(super) fn end_over_disk(&self) {
        if self.status() == ExecStatus::Running && !self.is_cancelled() {
            self.is_over_disk.store(true, Ordering::Release);
            self.cancel();
        }
    }

    /// Whether that is why it was ended.
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
