//! The execs of one container: who has a place and who waits for one.
//!
//! ```text
//! start ─▶ noted in the store ─▶ queue ─▶ place ─▶ follow ─▶ end in the store ─▶ published
//! ```
//!
//! An exec is in the index before it is in the store and leaves the index after its end is
//! in the store, so whoever knows its handle finds it in one of the two.

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
use crate::environment::Environment;

/// The execs of one container. Clones share them.
#[derive(Clone)]
pub(crate) struct ExecTable(pub(super) Arc<TableInner>);

/// What a table is made of.
pub(super) struct TableInner {
    pub(super) environment: Arc<Environment>,
    pub(super) connection: Arc<Connection>,
    pub(super) container: ContainerId,
    /// Variables of every exec in it.
    pub(super) env: Env,
    /// Whether execs may run as root of the container.
    pub(super) allow_root: bool,
    /// How its execs end, once the container is about to.
    pub(super) closing: watch::Sender<Option<ExecStatus>>,
    /// Whether followers shall let go.
    pub(super) is_closed: watch::Sender<bool>,
    /// Processes the kernel had killed for want of memory when last we looked.
    pub(super) oom_kills: AtomicU64,
    pub(super) counts: watch::Sender<Counts>,
    pub(super) limits: Limits,
    disk: Arc<DiskState>,
    pub(super) ids: Mutex<ExecIds>,
    /// Its interpreter that keeps its state.
    pub(super) notebook: Notebook,
    state: Mutex<State>,
}

/// How many execs a container has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// They have a place.
    running: usize,
    /// They wait for one.
    queued: usize,
}

/// Callers take turns; each of these is one.
type QueueKey = (Principal, Option<Name>);

pub(super) struct State {
    queue: Queue<QueueKey, Arc<LiveExec>>,
    running: usize,
    /// Execs that are being noted in the store.
    recording: usize,
    /// Bytes of all commands that wait or run.
    bytes: usize,
}

impl State {
    /// Slots are counted by whoever takes and frees them, each once.
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
    /// A container without execs.
    pub(crate) fn new(
        environment: &Arc<Environment>,
        connection: &Arc<Connection>,
        row: &ContainerRow,
        disk: &Arc<DiskState>,
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
            disk: Arc::clone(disk),
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

    /// Notes how many processes of the container were killed for want of memory so far.
    pub(crate) fn note_oom_kills(&self, oom_kills: u64) {
        self.0.oom_kills.store(oom_kills, Ordering::Relaxed);
    }

    /// How many run and how many wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let counts = self.0.counts.borrow();
        (counts.running, counts.queued)
    }

    /// Waits until none runs and none waits.
    pub(crate) async fn idle(&self) {
        let mut counts = self.0.counts.subscribe();
        let _ = counts.wait_for(|counts| *counts == Counts::default()).await;
    }
}

impl TableInner {
    /// Keeps a place in the queue for a command that is about to be noted; false if there
    /// is none, or the commands there are too large.
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

    /// Keeps a place for a command that was noted long ago, however many there are.
    pub(super) fn reserve_always(&self, command: &Command) {
        self.reserve_slot(&mut self.state(), bytes_of(command));
    }

    fn reserve_slot(&self, state: &mut State, bytes: usize) {
        state.recording += 1;
        state.bytes += bytes;
        self.publish_counts(state);
    }

    /// Gives a kept place back: the exec does not need it.
    pub(super) fn give_back(&self) {
        let mut state = self.state();
        state.end_recording();
        self.publish_counts(&state);
    }

    /// A command need not be held any longer.
    pub(super) fn drop_command(&self, command: &Command) {
        self.state().bytes -= bytes_of(command);
    }

    /// Queues an exec in the place that was kept for it.
    pub(super) fn enqueue(self: &Arc<Self>, turn: QueueKey, exec: Arc<LiveExec>) {
        let id = exec.id.clone();
        {
            let mut state = self.state();
            state.end_recording();
            state.queue.push(turn, exec);
        }
        self.start_queued();
        // The container may have been closed meanwhile: then nobody else ends it.
        if self.closing.borrow().is_some()
            && let Some(exec) = self.remove_queued(&id)
        {
            self.end_unstarted(&exec);
        }
    }

    /// Takes an exec out of the queue, if it is there.
    pub(super) fn remove_queued(&self, id: &ExecId) -> Option<Arc<LiveExec>> {
        let mut state = self.state();
        let found = state.queue.remove(|exec| exec.id == *id);
        self.publish_counts(&state);
        found
    }

    /// The next exec that waits, whether there is a place or not.
    pub(super) fn pop_queued(&self) -> Option<Arc<LiveExec>> {
        let mut state = self.state();
        let next = state.queue.pop();
        self.publish_counts(&state);
        next
    }

    /// Hands out places as long as there are places and execs.
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

    /// Gives a place to an exec that runs in the container already.
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

    /// Follows an exec that has a place, until it has ended. `is_known`: the agent has it,
    /// and the log may hold what another server wrote.
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
            // Before anybody hears of its end: it may have deleted files.
            shared.disk.may_write();
            shared.settle(&exec, &mut sink, end).await;
            shared.free_slot();
            shared.start_queued();
            shared.forget(&exec.id).await;
        });
    }

    /// Notes how an exec ended, then says so. While the store takes nothing, it waits.
    pub(super) async fn settle(&self, exec: &LiveExec, sink: &mut OutputSink, end: ExecEnd) {
        let environment = &self.environment;
        let now = environment.clock.unix_ms();
        // Before it is stored: after a crash it is recorded twice rather than never.
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
        // It has been written meanwhile, or waits for the disk: an end is told in any case.
        let _ = recording.written().await;
        // Whoever hears of the end finds room for the next one.
        environment.execs.remove(&exec.id);
        exec.ended(end, sink.last_seq());
        environment.prune_excess(&exec.principal).await;
    }

    /// Lets the agent drop an exec whose end is stored. If that fails, the next server
    /// tries again.
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

    /// Where the output of an exec goes. Whoever gets it finishes it when the exec has ended.
    pub(super) fn sink_of(&self, exec: &LiveExec) -> OutputSink {
        if let Some(stream) = exec.take_stream() {
            return OutputSink::Stream(stream);
        }
        let environment = &self.environment;
        let output_bytes_max = environment.settings().output_bytes_max;
        OutputSink::Log(environment.store.log_writer(&exec.id, output_bytes_max))
    }

    /// Counts what was added to the log of an exec for its principal.
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

/// Bytes of all commands, with their environment and input, that wait or run in one
/// container.
pub(super) const COMMANDS_BYTES_MAX: usize = 64 << 20;

/// Attempts to let the agent drop an exec.
const FORGET_ATTEMPTS_MAX: u32 = 2;

/// What a caller is told while the store takes nothing.
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
