//! Ends execs together with their container.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::{ExecEnd, ExecStatus, Limits};

use super::end::without_exit;
use super::live::LiveExec;
use super::table::{ExecTable, TableInner};
use crate::disk::why_ended;

/// How long storing the ends of all execs may take.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

impl ExecTable {
    /// The container is about to end: refuses new execs and ends queued ones. Running ones are
    /// followed until [`ExecTable::finish`], so that their last output is kept. `status` is their
    /// final status.
    pub(crate) async fn close(&self, status: ExecStatus) {
        let shared = &self.0;
        shared.closing.send_if_modified(|closing| {
            let is_first = closing.is_none();
            closing.get_or_insert(status);
            is_first
        });
        let mut waiting = Vec::new();
        while let Some(exec) = shared.pop_queued() {
            shared.end_unstarted(&exec);
            waiting.push(exec);
        }
        until_all_ended(&waiting).await;
    }

    /// Ends running execs, because the container exceeds its disk limit.
    pub(crate) fn end_over_disk(&self) {
        self.0.disk_ends.fetch_add(1, Ordering::AcqRel);
        for exec in self.0.live_execs() {
            exec.end_over_disk();
        }
    }

    /// The container has ended, and all its execs with it. Returns when their ends are stored, or
    /// cannot be for now.
    pub(crate) async fn finish(&self, status: ExecStatus) {
        self.close(status).await;
        self.0.is_closed.send_replace(true);
        until_all_ended(&self.0.live_execs()).await;
    }
}

async fn until_all_ended(execs: &[Arc<LiveExec>]) {
    let ended = async {
        for exec in execs {
            exec.until_ended().await;
        }
    };
    let _ = tokio::time::timeout(FINISH_TIMEOUT, ended).await;
}

impl TableInner {
    /// Stores the end of an exec that was never started.
    pub(super) fn end_unstarted(self: &Arc<Self>, exec: &Arc<LiveExec>) {
        let (shared, exec) = (Arc::clone(self), Arc::clone(exec));
        self.environment.tasks.spawn(async move {
            let end = if exec.is_cancelled() {
                cancelled()
            } else {
                shared.closed_end(exec.oom_kills_before)
            };
            let mut sink = shared.sink_of(&exec);
            shared.settle(&exec, &mut sink, end).await;
        });
    }

    pub(super) fn live_execs(&self) -> Vec<Arc<LiveExec>> {
        let execs = &self.environment.execs;
        execs.filter(|exec| exec.container == self.container)
    }

    /// The end of an exec whose container has ended. `oom_kills_before`: the OOM kill counter when the
    /// exec was requested.
    pub(super) fn closed_end(&self, oom_kills_before: u64) -> ExecEnd {
        let had_oom_kills = self.oom_kills.load(Ordering::Relaxed) > oom_kills_before;
        match *self.closing.borrow() {
            Some(ExecStatus::Cancelled) => {
                without_exit(ExecStatus::Cancelled, "its container was killed")
            }
            Some(ExecStatus::OomKilled) if had_oom_kills => out_of_memory(),
            Some(_) | None => lost(),
        }
    }
}

/// The end of an exec whose container is gone for unknown reasons.
pub(super) fn lost() -> ExecEnd {
    without_exit(ExecStatus::Lost, "its container ended under it")
}

/// The end of an exec whose container was killed by the OOM killer.
fn out_of_memory() -> ExecEnd {
    without_exit(
        ExecStatus::OomKilled,
        "its container ran out of memory and ended",
    )
}

/// The end of an exec whose container exceeds its disk limit.
pub(super) fn over_disk(limits: &Limits) -> ExecEnd {
    without_exit(ExecStatus::DiskLimit, why_ended(limits))
}

/// The end of an exec that was never started.
pub(super) fn cancelled() -> ExecEnd {
    without_exit(ExecStatus::Cancelled, "it was cancelled before it started")
}
