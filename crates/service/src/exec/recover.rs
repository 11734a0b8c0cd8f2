//! Going on with what another server left.
//!
//! The agent's table is the truth of what was started: what it knows is followed from where
//! the log ends, what it does not know has never run and is queued again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_agent_client::ExecInfo;
use hotcell_domain::{ExecId, ExecStatus};
use hotcell_engine::EngineError;
use hotcell_store::{ExecRow, StoreError};

use super::close::lost;
use super::live::LiveExec;
use super::sink::OutputSink;
use super::table::{ExecTable, NOT_STORED, TableInner};
use crate::backoff::Backoff;
use crate::environment::Environment;

impl ExecTable {
    /// Takes over execs that an earlier server noted, oldest first: they can be found when
    /// this returns; the agent is asked about them in the background. Whoever calls has noted
    /// how many processes were killed for want of memory.
    pub(crate) fn recover(&self, rows: Vec<ExecRow>) {
        let shared = Arc::clone(&self.0);
        let execs: Vec<_> = rows.into_iter().map(|row| shared.adopt(row)).collect();
        let tasks = &self.0.environment.tasks;
        tasks.spawn(async move { shared.place(execs).await });
    }
}

impl TableInner {
    /// From here on the exec can be found.
    fn adopt(self: &Arc<Self>, mut row: ExecRow) -> Arc<LiveExec> {
        // An engine may have begun to count anew.
        let oom_kills = self.oom_kills.load(Ordering::Relaxed);
        row.oom_kills_before = row.oom_kills_before.min(oom_kills);
        let exec = Arc::new(LiveExec::recovered(row, Arc::downgrade(self)));
        self.environment.execs.insert_found(&exec);
        self.reserve_always(&exec.command);
        exec
    }

    /// Gives each exec its place: first those that run, then the queue for the others.
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

    /// Notes the end of an exec whose container is gone.
    async fn end_gone(&self, exec: &LiveExec) {
        let mut sink = self.sink_of(exec);
        self.open_log(exec, &mut sink).await;
        self.settle(exec, &mut sink, self.closed_end()).await;
    }

    async fn go_on(self: &Arc<Self>, exec: Arc<LiveExec>, stdin_accepted: u64) {
        exec.written.lock().await.goes_on_from(stdin_accepted);
        self.give_back();
        self.take_slot();
        self.run(exec, true);
    }

    /// What the agent runs; `None` if there is no agent any more.
    async fn ask_agent(&self) -> Option<HashMap<String, ExecInfo>> {
        let mut backoff = Backoff::new();
        loop {
            if let Ok(connected) = self.connection.get().await {
                match connected.agent.list_execs().await {
                    Ok(execs) => {
                        let by_id = execs.into_iter().map(|exec| (exec.exec_id.clone(), exec));
                        return Some(by_id.collect());
                    }
                    Err(error) => self.connection.report(&connected, &error),
                }
            }
            if self.is_gone().await {
                return None;
            }
            backoff.wait().await;
        }
    }

    async fn is_gone(&self) -> bool {
        match self.environment.engine.inspect(&self.container).await {
            Err(EngineError::NotFound { .. }) => true,
            Ok(container) => container.phase.is_final(),
            Err(_) => *self.is_closed.borrow(),
        }
    }

    /// Lets the agent drop execs whose end is stored: a server died before it could.
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

    /// Opens the log that another server left, however long that takes.
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
    /// Notes that an exec is lost whose container was gone when this server started.
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
