//! Reads an exec's status and output.

use std::time::Duration;

use hotcell_domain::{Caller, ContainerId, ExecEnd, ExecId, ExecStatus};
use hotcell_store::{LogMessage, LogPage, Store};
use tokio::sync::watch;

use super::find::FoundExec;
use super::live::{LiveExec, Progress};
use super::{ExecView, Message, Poll};
use crate::{Action, Inner, Service, ServiceError};

/// The longest that one call waits.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The most output in one reply.
const BYTES_MAX: usize = 8 << 20;

impl Service {
    /// Returns the status and a page of output, waiting for news if asked to. Dropping the future
    /// changes nothing.
    pub async fn exec_poll(
        &self,
        caller: &Caller,
        id: &ExecId,
        poll: Poll,
    ) -> Result<ExecView, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ExecPoll, id);
        let (view, mut operation) = operation.open(inner.poll_exec(caller, id, poll)).await?;
        operation.count_bytes(view.messages.iter().map(|message| message.data.len()).sum());
        operation.end().written().await?;
        Ok(view)
    }

    /// Waits for news as [`Service::exec_poll`] does, but reads nothing: for callers that must
    /// reserve memory for the output first.
    pub async fn exec_news(
        &self,
        caller: &Caller,
        id: &ExecId,
        poll: Poll,
    ) -> Result<(), ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ExecWait, id);
        operation.run(inner.wait_for_news(caller, id, poll)).await
    }
}

impl Inner {
    async fn poll_exec(
        &self,
        caller: &Caller,
        id: &ExecId,
        poll: Poll,
    ) -> Result<ExecView, ServiceError> {
        let environment = &self.environment;
        let poll = Poll {
            wait: poll.wait.min(WAIT_MAX),
            bytes_max: poll.bytes_max.min(BYTES_MAX),
            ..poll
        };
        match environment.find_exec(caller, id).await? {
            FoundExec::Live(exec) => {
                self.used(&exec.container);
                let view = exec.poll(&environment.store, poll).await?;
                Ok(self.with_egress(view, &exec.container))
            }
            FoundExec::Ended(row, end) => {
                let page = environment
                    .store
                    .read_log(id, poll.after_seq, poll.bytes_max)
                    .await?;
                let view = view(row.id, end.status, page, Some(end));
                Ok(self.with_egress(view, &row.container))
            }
        }
    }

    /// Adds what the container's egress did while the exec ran.
    fn with_egress(&self, view: ExecView, container: &ContainerId) -> ExecView {
        let container = self.registry.get(container);
        let egress = container.and_then(|container| container.egress());
        let egress = egress.and_then(|egress| egress.report(&view.id));
        ExecView { egress, ..view }
    }

    async fn wait_for_news(
        &self,
        caller: &Caller,
        id: &ExecId,
        poll: Poll,
    ) -> Result<(), ServiceError> {
        let environment = &self.environment;
        let FoundExec::Live(exec) = environment.find_exec(caller, id).await? else {
            return Ok(());
        };
        self.used(&exec.container);
        let mut progress = exec.progress();
        let news = exec.news(&environment.store, poll, &mut progress);
        let waited = tokio::time::timeout(poll.wait.min(WAIT_MAX), news).await;
        waited.unwrap_or(Ok(()))
    }
}

impl LiveExec {
    async fn poll(&self, store: &Store, poll: Poll) -> Result<ExecView, ServiceError> {
        let mut progress = self.progress();
        if !poll.wait.is_zero() {
            let news = self.news(store, poll, &mut progress);
            let waited = tokio::time::timeout(poll.wait, news).await;
            waited.unwrap_or(Ok(()))?;
        }
        // The status is taken before the log is read: if it says that the exec has ended, the log
        // is complete.
        let now = progress.borrow().clone();
        let page = self.read_log(store, poll, &now).await?;
        let mut view = view(self.id.clone(), now.status, page, now.end);
        view.stalled = now.stalled;
        Ok(view)
    }

    /// Reads the output up to the state `now`, and perhaps newer output.
    async fn read_log(
        &self,
        store: &Store,
        poll: Poll,
        now: &Progress,
    ) -> Result<LogPage, ServiceError> {
        if now.wrote_nothing() {
            return Ok(LogPage::empty(poll.after_seq));
        }
        let page = store.read_log(&self.id, poll.after_seq, poll.bytes_max);
        Ok(page.await?)
    }

    /// Waits for new output or the end, as the poll asks.
    async fn news(
        &self,
        store: &Store,
        poll: Poll,
        progress: &mut watch::Receiver<Progress>,
    ) -> Result<(), ServiceError> {
        let now = progress.borrow().clone();
        if !poll.until_end {
            let is_news =
                |progress: &Progress| progress.end.is_some() || progress.last_seq > poll.after_seq;
            let _ = progress.wait_for(is_news).await;
            return Ok(());
        }
        if now.end.is_some() {
            return Ok(());
        }
        let page = self.read_log(store, poll, &now).await?;
        if page.has_more {
            return Ok(());
        }
        let present: usize = page.messages.iter().map(|message| message.data.len()).sum();
        let room = poll.bytes_max.saturating_sub(present) as u64;
        let is_full = |progress: &Progress| progress.bytes.saturating_sub(now.bytes) >= room;
        let _ = progress
            .wait_for(|progress| progress.end.is_some() || is_full(progress))
            .await;
        Ok(())
    }
}

fn view(id: ExecId, status: ExecStatus, page: LogPage, end: Option<ExecEnd>) -> ExecView {
    ExecView {
        id,
        status,
        messages: page.messages.into_iter().map(message).collect(),
        next_seq: page.next_seq,
        is_complete: end.is_some() && !page.has_more,
        end,
        stalled: None,
        truncated_bytes: page.truncated_bytes,
        egress: None,
    }
}

fn message(message: LogMessage) -> Message {
    Message {
        seq: message.seq,
        stream: message.stream,
        unix_ms: message.unix_ms,
        data: message.data,
    }
}
