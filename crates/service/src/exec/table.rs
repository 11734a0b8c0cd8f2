//! The execs of one container: which of them have a slot, and which are queued.
//!
//! ```text
//! start ─▶ recorded in the store ─▶ queue ─▶ slot ─▶ follow ─▶ end in the store ─▶ published
//! ```
//!
//! An exec enters the index before it is stored, and leaves the index after its end is stored. So
//! an exec with a known id is always in at least one of the two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_domain::{
    Caller, Command, ContainerId, Env, ExecEnd, ExecId, ExecStatus, Limits, Name, Principal,
};
use hotcell_store::ContainerRow;
use tokio::sync::watch;

use super::ids::ExecIds;
use super::live::LiveExec;
use super::notebook::Notebook;
use super::queue::Queue;
use super::sink::OutputSink;
use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::disk::DiskState;
use crate::egress::ContainerEgress;
use crate::environment::Environment;

/// The execs of one container. Clones share them.
#[derive(Clone)]
pub(crate) struct ExecTable(pub(super) Arc<TableInner>);

/// The shared state of a table.
pub(super) struct TableInner {
    pub(super) environment: Arc<Environment>,
    pub(super) connection: Arc<Connection>,
    pub(super) container: ContainerId,
    /// Environment variables of every exec in the container.
    pub(super) env: Env,
    /// Whether execs may run as root in the container.
    pub(super) allow_root: bool,
    /// The final status of its execs, once the container is about to end.
    pub(super) closing: watch::Sender<Option<ExecStatus>>,
    /// Whether followers must stop: the container has ended.
    pub(super) is_closed: watch::Sender<bool>,
    /// The container's OOM kill counter when it was last read.
    pub(super) oom_kills: AtomicU64,
    /// How often execs were ended because the container exceeded its disk limit.
    pub(super) disk_ends: AtomicU64,
    pub(super) counts: watch::Sender<Counts>,
    pub(super) limits: Limits,
    disk: Arc<DiskState>,
    /// What the container reaches, if it has a profile.
    pub(super) egress: Option<Arc<ContainerEgress>>,
    pub(super) ids: Mutex<ExecIds>,
    /// The stateful interpreter.
    pub(super) notebook: Notebook,
    state: Mutex<State>,
}

/// How many execs a container has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Execs that have a slot.
    running: usize,
    /// Execs that wait for a slot.
    queued: usize,
}

/// Callers take turns in the queue; each key is one caller.
type QueueKey = (Principal, Option<Name>);

pub(super) struct State {
    queue: Queue<QueueKey, Arc<LiveExec>>,
    running: usize,
    /// Execs that are being recorded in the store.
    recording: usize,
    /// Bytes of all commands, queued or running.
    bytes: usize,
}

impl State {
    /// Each slot is freed once, by the task that took it.
    fn end_running(&mut self) {
        debug_assert!(self.running > 0, "a slot is freed that nobody has");
        self.running = self.running.saturating_sub(1);
    }

    fn end_recording(&mut self) {
        debug_assert!(self.recording > 0, "a reservation ends that nobody made");
        self.recording = self.recording.saturating_sub(1);
    }
}

impl ExecTable {
    /// The table of a container that has no execs yet.
    pub(crate) fn new(
        environment: &Arc<Environment>,
        connection: &Arc<Connection>,
        row: &ContainerRow,
        disk: &Arc<DiskState>,
        egress: Option<Arc<ContainerEgress>>,
    ) -> Self {
        Self(Arc::new(TableInner {
            environment: Arc::clone(environment),
            connection: Arc::clone(connection),
            container: row.id.clone(),
            env: row.spec.env.clone(),
            allow_root: row.spec.allow_root,
            closing: watch::Sender::new(None),
            is_closed: watch::Sender::new(false),
            oom_kills: AtomicU64::new(0),
            counts: watch::Sender::new(Counts::default()),
            limits: row.spec.limits,
            disk_ends: AtomicU64::new(0),
            disk: Arc::clone(disk),
            egress,
            ids: Mutex::default(),
            notebook: Notebook::new(),
            state: Mutex::new(State {
                queue: Queue::new(),
                running: 0,
                recording: 0,
                bytes: 0,
            }),
        }))
    }

    /// Sets the container's OOM kill counter, with which later values are compared.
    pub(crate) fn note_oom_kills(&self, oom_kills: u64) {
        self.0.oom_kills.store(oom_kills, Ordering::Relaxed);
    }

    /// Returns how many execs run and how many are queued.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let counts = self.0.counts.borrow();
        (counts.running, counts.queued)
    }

    /// Waits until no exec runs and none is queued.
    pub(crate) async fn idle(&self) {
        let mut counts = self.0.counts.subscribe();
        let _ = counts.wait_for(|counts| *counts == Counts::default()).await;
    }
}

impl TableInner {
    /// Reserves room for a command that is about to be recorded; false if the queue is full or the
    /// commands in it are too large.
    pub(super) fn reserve(&self, command: &Command) -> bool {
        let settings = self.environment.settings();
        let places = settings.execs_running_max.max(1) + settings.execs_queued_max;
        let bytes = bytes_of(command);
        let mut state = self.state();
        let is_full = state.running + state.queue.len() + state.recording >= places;
        if is_full || state.bytes + bytes > COMMANDS_BYTES_MAX {
            return false;
        }
        self.reserve_slot(&mut state, bytes);
        true
    }

    /// Reserves room for a command that an earlier server recorded, even if the queue is full.
    pub(super) fn reserve_always(&self, command: &Command) {
        self.reserve_slot(&mut self.state(), bytes_of(command));
    }

    fn reserve_slot(&self, state: &mut State, bytes: usize) {
        state.recording += 1;
        state.bytes += bytes;
        self.publish_counts(state);
    }

    /// Releases a reservation that is not needed.
    pub(super) fn give_back(&self) {
        let mut state = self.state();
        state.end_recording();
        self.publish_counts(&state);
    }

    /// Stops counting the bytes of a command.
    pub(super) fn drop_command(&self, command: &Command) {
        self.state().bytes -= bytes_of(command);
    }

    /// Queues an exec, using the reservation.
    pub(super) fn enqueue(self: &Arc<Self>, turn: QueueKey, exec: Arc<LiveExec>) {
        let id = exec.id.clone();
        {
            let mut state = self.state();
            state.end_recording();
            state.queue.push(turn, exec);
        }
        self.start_queued();
        // The container may have begun to end meanwhile: then nobody else ends this exec.
        if self.closing.borrow().is_some()
            && let Some(exec) = self.remove_queued(&id)
        {
            self.end_unstarted(&exec);
        }
    }

    /// Removes an exec from the queue, if it is there.
    pub(super) fn remove_queued(&self, id: &ExecId) -> Option<Arc<LiveExec>> {
        let mut state = self.state();
        let found = state.queue.remove(|exec| exec.id == *id);
        self.publish_counts(&state);
        found
    }

    /// Removes the next exec from the queue, even if no slot is free.
    pub(super) fn pop_queued(&self) -> Option<Arc<LiveExec>> {
        let mut state = self.state();
        let next = state.queue.pop();
        self.publish_counts(&state);
        next
    }

    /// Starts queued execs while slots are free.
    pub(super) fn start_queued(self: &Arc<Self>) {
        while let Some(exec) = self.next_to_run() {
            self.environment.metrics.exec_waited(exec.waited());
            self.run(exec, false);
        }
    }

    fn next_to_run(&self) -> Option<Arc<LiveExec>> {
        let mut state = self.state();
        let has_place = state.running < self.environment.settings().execs_running_max.max(1);
        let is_open = self.closing.borrow().is_none();
        let next = (has_place && is_open).then(|| state.queue.pop()).flatten();
        state.running += usize::from(next.is_some());
        self.publish_counts(&state);
        next
    }

    /// Takes a slot for an exec that already runs in the container.
    pub(super) fn take_slot(&self) {
        let mut state = self.state();
        state.running += 1;
        self.publish_counts(&state);
    }

    pub(super) fn free_slot(&self) {
        let mut state = self.state();
        state.end_running();
        self.publish_counts(&state);
    }

    /// Follows an exec that has a slot until it has ended. `is_known`: the agent has it, and the
    /// log may contain output that another server wrote.
    pub(super) fn run(self: &Arc<Self>, exec: Arc<LiveExec>, is_known: bool) {
        let shared = Arc::clone(self);
        exec.runs();
        self.disk.may_write();
        self.environment.tasks.spawn(async move {
            let mut sink = shared.sink_of(&exec);
            if is_known {
                shared.open_log(&exec, &mut sink).await;
            }
            let end = shared.follow(&exec, &mut sink, is_known).await;
            // Before the end is published: the command may have deleted files.
            shared.disk.may_write();
            shared.settle(&exec, &mut sink, end).await;
            shared.free_slot();
            shared.start_queued();
            shared.forget(&exec.id).await;
        });
    }

    /// Notes that an exec begins; returns the variables that the container's profile needs, once
    /// names can be looked up.
    pub(super) async fn begin_egress(&self, exec: &ExecId) -> Env {
        match &self.egress {
            Some(egress) => egress.begin(exec).await,
            None => Env::default(),
        }
    }

    pub(super) fn finish_egress(&self, exec: &ExecId) {
        if let Some(egress) = &self.egress {
            egress.finish(exec);
        }
    }

    /// Stores how an exec ended, then publishes the end. Retries while the store fails.
    pub(super) async fn settle(&self, exec: &LiveExec, sink: &mut OutputSink, end: ExecEnd) {
        let environment = &self.environment;
        self.finish_egress(&exec.id);
        let now = environment.clock.unix_ms();
        // The audit event comes before the store: after a crash the end is recorded twice rather
        // than never.
        let recording = environment.record_exec_end(exec.ids(), &end, now);
        let mut backoff = Backoff::new();
        loop {
            let finished = sink.finish(now).await;
            let stored = match finished {
                Ok(_) => {
                    environment
                        .store
                        .end_exec(exec.id.clone(), end.clone(), now)
                        .await
                }
                Err(error) => Err(error),
            };
            let Err(error) = stored else { break };
            tracing::warn!(exec.id = %exec.id, %error, "the end of an exec is not stored yet");
            environment.metrics.store_failed();
            exec.set_stalled(Some(NOT_STORED));
            backoff.wait().await;
        }
        let wall = end
            .usage
            .map_or(Duration::ZERO, |usage| Duration::from_millis(usage.wall_ms));
        environment.metrics.exec_ended(end.status, wall);
        self.drop_command(&exec.command);
        // The event is written by now, or the disk is full: the end is published in either case.
        let _ = recording.written().await;
        // Removed before the end is published, so that the caller's next exec fits into the quota.
        environment.execs.remove(&exec.id);
        exec.ended(end, sink.last_seq());
        environment.prune_excess(&exec.principal).await;
    }

    /// Lets the agent forget an exec whose end is stored. If that fails, the next server tries
    /// again.
    pub(super) async fn forget(&self, id: &ExecId) {
        if self.closing.borrow().is_some() {
            return;
        }
        for _ in 0..FORGET_ATTEMPTS_MAX {
            let Ok(connected) = self.connection.get().await else {
                return;
            };
            match connected.agent.forget(id.as_str()).await {
                Ok(()) => return,
                Err(error) => self.connection.report(&connected, &error),
            }
        }
    }

    /// Creates the sink for an exec's output. The caller finishes it when the exec has ended.
    pub(super) fn sink_of(&self, exec: &LiveExec) -> OutputSink {
        if let Some(stream) = exec.take_stream() {
            return OutputSink::Stream(stream);
        }
        let environment = &self.environment;
        let output_bytes_max = environment.settings().output_bytes_max;
        OutputSink::Log(environment.store.log_writer(&exec.id, output_bytes_max))
    }

    /// Counts new log bytes towards the quota of the exec's principal.
    pub(super) fn count_output(&self, exec: &LiveExec, bytes: u64) {
        if exec.has_log() {
            let environment = &self.environment;
            let bytes_max = environment.settings().output_bytes_max;
            environment.execs.count_output(&exec.id, bytes, bytes_max);
        }
    }

    fn publish_counts(&self, state: &State) {
        let counts = Counts {
            running: state.running,
            queued: state.queue.len() + state.recording,
        };
        self.counts.send_if_modified(|now| {
            let is_news = *now != counts;
            *now = counts;
            is_news
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of all commands in one container, queued or running, with their environment and input.
pub(super) const COMMANDS_BYTES_MAX: usize = 64 << 20;

/// Attempts to let the agent forget an exec.
const FORGET_ATTEMPTS_MAX: u32 = 2;

/// The stall reason while the store cannot be written.
pub(super) const NOT_STORED: &str =
    "the server cannot store its output now (is the disk full?); it is paused, and nothing is lost";

fn bytes_of(command: &Command) -> usize {
    let argv: usize = command.argv().iter().map(String::len).sum();
    let env = command.env.iter();
    let env: usize = env.map(|(name, value)| name.len() + value.len()).sum();
    let stdin = command.stdin().text().map_or(0, str::len);
    argv + env + stdin
}

pub(super) fn queue_key_of(caller: &Caller) -> QueueKey {
    (caller.principal.clone(), caller.client.clone())
}
