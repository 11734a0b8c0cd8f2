//! Takes over the execs of an earlier server.
//!
//! The agent's table decides what was started: an exec that the agent knows is followed from the
//! end of its log; one that it does not know never ran, and is queued again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_agent_client::ExecInfo;
use hotcell_domain::{ExecId, ExecStatus};
use hotcell_store::{ExecRow, StoreError};

use super::close::lost;
use super::live::LiveExec;
use super::sink::OutputSink;
use super::table::{ExecTable, NOT_STORED, TableInner};
use crate::backoff::Backoff;
use crate::environment::Environment;

impl ExecTable {
    /// Takes over execs that an earlier server recorded, oldest first. They can be found when this
    /// returns; the agent is asked about them in the background. The caller must have called
    /// [`ExecTable::note_oom_kills`] before.
    pub(crate) fn recover(&self, rows: Vec<ExecRow>) {
        let shared = Arc::clone(&self.0);
        let execs: Vec<_> = rows.into_iter().map(|row| shared.adopt(row)).collect();
        let tasks = &self.0.environment.tasks;
        tasks.spawn(async move { shared.place(execs).await });
    }
}

impl TableInner {
    /// Adds the exec to the index, so that it can be found.
    fn adopt(self: &Arc<Self>, mut row: ExecRow) -> Arc<LiveExec> {
        // The engine's counter may have restarted from zero.
        let oom_kills = self.oom_kills.load(Ordering::Relaxed);
        row.oom_kills_before = row.oom_kills_before.min(oom_kills);
        let exec = Arc::new(LiveExec::recovered(row, Arc::downgrade(self)));
        self.environment.execs.insert_found(&exec);
        self.reserve_always(&exec.command);
        exec
    }

    /// Gives each exec its slot: first those that run, then the others through the queue.
    async fn place(self: &Arc<Self>, execs: Vec<Arc<LiveExec>>) {
        let Some(known) = self.ask_agent().await else {
            for exec in execs {
                self.give_back();
                self.end_gone(&exec).await;
            }
            return;
        };
        self.forget_strangers(&execs, &known);
        let (started, waiting): (Vec<_>, Vec<_>) = execs
            .into_iter()
            .partition(|exec| known.contains_key(exec.id.as_str()));
        for exec in started {
            let accepted = known.get(exec.id.as_str()).map(|info| info.stdin_accepted);
            self.go_on(exec, accepted.unwrap_or(0)).await;
        }
        for exec in waiting {
            self.enqueue((exec.principal.clone(), None), exec);
        }
    }

    /// Stores the end of an exec whose container is gone.
    async fn end_gone(&self, exec: &LiveExec) {
        let mut sink = self.sink_of(exec);
        self.open_log(exec, &mut sink).await;
        self.settle(exec, &mut sink, self.closed_end(exec.oom_kills_before))
            .await;
    }

    async fn go_on(self: &Arc<Self>, exec: Arc<LiveExec>, stdin_accepted: u64) {
        exec.written.lock().await.goes_on_from(stdin_accepted);
        self.give_back();
        self.take_slot();
        self.run(exec, true);
    }

    /// The execs that the agent knows; `None` if the supervisor says that the container has ended.
    async fn ask_agent(&self) -> Option<HashMap<String, ExecInfo>> {
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            known = self.until_answered() => Some(known),
            _ = is_closed.wait_for(|is_closed| *is_closed) => None,
        }
    }

    async fn until_answered(&self) -> HashMap<String, ExecInfo> {
        let mut backoff = Backoff::new();
        loop {
            if let Ok(connected) = self.connection.get().await {
                match connected.agent.list_execs().await {
                    Ok(execs) => {
                        let by_id = execs.into_iter().map(|exec| (exec.exec_id.clone(), exec));
                        return by_id.collect();
                    }
                    Err(error) => self.connection.report(&connected, &error),
                }
            }
            backoff.wait().await;
        }
    }

    /// Lets the agent forget execs whose end is stored: a server died before it could.
    fn forget_strangers(
        self: &Arc<Self>,
        ours: &[Arc<LiveExec>],
        known: &HashMap<String, ExecInfo>,
    ) {
        let is_strange =
            |info: &&ExecInfo| !ours.iter().any(|exec| exec.id.as_str() == info.exec_id);
        let ended = known.values().filter(|info| !info.running);
        let strange: Vec<_> = ended.filter(is_strange).filter_map(id_of).collect();
        let shared = Arc::clone(self);
        self.environment.tasks.spawn(async move {
            for id in strange {
                shared.forget(&id).await;
            }
        });
    }

    /// Opens the log of an earlier server, retrying for as long as that takes.
    pub(super) async fn open_log(&self, exec: &LiveExec, sink: &mut OutputSink) {
        let mut backoff = Backoff::new();
        while let Err(error) = sink.open().await {
            tracing::warn!(exec.id = %exec.id, %error, "a log cannot be opened yet");
            self.environment.metrics.store_failed();
            exec.set_stalled(Some(NOT_STORED));
            backoff.wait().await;
        }
        exec.wrote(sink.last_seq(), 0);
        let bytes = self.environment.store.log_bytes(&exec.id).await;
        self.count_output(exec, bytes);
    }
}

fn id_of(info: &ExecInfo) -> Option<ExecId> {
    ExecId::parse(&info.exec_id).ok()
}

impl Environment {
    /// Stores the end of an exec whose container was gone when this server started.
    pub(crate) async fn lose_exec(&self, row: ExecRow) -> Result<(), StoreError> {
        let now = self.clock.unix_ms();
        let output_bytes_max = self.settings().output_bytes_max;
        let mut log = self.store.log_writer(&row.id, output_bytes_max);
        log.open().await?;
        log.finish(now).await?;
        let ids = (
            row.principal.as_str(),
            row.id.as_str(),
            row.container.as_str(),
        );
        let recording = self.record_exec_end(ids, &lost(), now);
        self.store.end_exec(row.id.clone(), lost(), now).await?;
        let _ = recording.written().await;
        self.metrics.exec_ended(ExecStatus::Lost, Duration::ZERO);
        Ok(())
    }
}
