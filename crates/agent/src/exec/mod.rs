//! Execs: commands that the server started, with their numbered output and their exit.
//!
//! ```text
//!            Input ─▶ stdin ─┐                       ┌─▶ follower (at most one)
//!  start ─▶ keeper ─▶ leader ┴▶ pipes ─▶ supervisor ─┴─▶ event log ◀─ ack
//!                                            ▲                │ full: the pipes are not read
//!                          timeout, Cancel ──┘                ▼ and the process waits
//! ```
//!
//! An exec does not depend on a connection. One task, its supervisor, owns it from start to end;
//! calls only query it.
//!
//! An exec goes through three phases before it is forgotten:
//!
//! ```text
//!  Running ──leader ended──▶ Draining ──exit is an event──▶ Finished
//! ```
//!
//! From `Draining` on, callers see the exec as finished, although its last output may still wait
//! for room.

mod error;
mod events;
mod follow;
mod input;
mod output;
mod registry;
mod start;
mod status;
mod stdio;
mod supervise;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::exec_event::Event;
use hotcell_agent_api::v1::{ExecEvent, ExecInfo, Exit, ExitCause, Output, Started};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{Winsize, tcsetwinsize};

use self::events::{Events, SeqError};
use self::input::Input;
use self::output::Chunk;
use self::start::Fingerprint;
use crate::process::{Gone, tree};

pub(crate) use self::status::Status;
pub(crate) use self::stdio::{Fd, watch_nonblocking};

pub use error::ExecError;
pub use follow::{Acks, Follower};
pub use registry::Execs;
pub use start::{Start, StartError, grace, window};

/// One command, from its start until the server forgets it.
pub struct Exec {
    id: String,
    fingerprint: Fingerprint,
    /// Grows with each start.
    pub serial: u64,
    keeper: Pid,
    gone: Gone,
    pub input: Input,
    state: Mutex<State>,
}

struct State {
    events: Events,
    phase: Phase,
    leader: Option<Pid>,
    /// Why the agent ended it, if it did.
    cause: Option<ExitCause>,
    terminal: Option<Fd>,
    /// The number of the current follower; 0 before the first.
    follower: u64,
    /// An invalid acknowledgement of the current follower.
    follower_error: Option<FollowerError>,
    is_forgotten: bool,
    follower_waker: Option<Waker>,
    supervisor_waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Draining,
    Finished,
}

/// The parts of a new [`Exec`].
pub struct ExecParts {
    pub id: String,
    /// Of the `start` request, to recognize a repeated one.
    pub fingerprint: Fingerprint,
    /// Grows with each start.
    pub serial: u64,
    /// The ancestor of all its processes.
    pub keeper: Pid,
    /// Resolves when the keeper has exited.
    pub gone: Gone,
    pub input: Input,
    pub terminal: Option<Fd>,
}

impl Exec {
    pub fn new(parts: ExecParts) -> Arc<Self> {
        Arc::new(Self {
            id: parts.id,
            fingerprint: parts.fingerprint,
            serial: parts.serial,
            keeper: parts.keeper,
            gone: parts.gone,
            input: parts.input,
            state: Mutex::new(State::new(parts.terminal)),
        })
    }

    /// Whether it was started by an identical request.
    pub fn was_started_as(&self, fingerprint: Fingerprint) -> bool {
        self.fingerprint == fingerprint
    }

    pub fn info(&self) -> ExecInfo {
        let state = self.lock();
        ExecInfo {
            exec_id: self.id.clone(),
            running: state.phase == Phase::Running,
            last_seq: state.events.last(),
            acked_seq: state.events.acked(),
            stdin_accepted: self.input.accepted(),
        }
    }

    /// Whether its leader is still running.
    pub fn is_running(&self) -> bool {
        self.lock().phase == Phase::Running
    }

    /// Whether it can be dropped: it has finished and all its events are acknowledged.
    pub fn is_settled(&self) -> bool {
        let state = self.lock();
        state.phase == Phase::Finished && state.events.acked() == state.events.last()
    }

    /// Signals the leader's process group, or every process of the exec.
    pub async fn signal(&self, signal: Signal, whole_tree: bool) -> Result<(), ExecError> {
        if !whole_tree {
            return self.signal_group(signal);
        }
        if self.gone.is_gone() {
            return Err(ExecError::NotRunning);
        }
        if signal == Signal::KILL {
            return Ok(tree::kill(self.keeper, self.gone.clone()).await?);
        }
        tree::signal(self.keeper, signal).map_err(|error| ExecError::Tree(error.into()))
    }

    fn signal_group(&self, signal: Signal) -> Result<(), ExecError> {
        // While we hold the lock, the leader's pid cannot be forgotten. It may have exited a few
        // microseconds ago without the keeper's report, but its pid is not reused that fast.
        let state = self.lock();
        let leader = state.leader.ok_or(ExecError::NotRunning)?;
        kill_process_group(leader, signal).map_err(ExecError::os("send the signal"))
    }

    /// Sets the terminal size; the kernel sends SIGWINCH to the foreground process group.
    pub fn resize(&self, size: Winsize) -> Result<(), ExecError> {
        let state = self.lock();
        let terminal = state.terminal.as_ref().ok_or(ExecError::NoTerminal)?;
        tcsetwinsize(terminal.get_ref(), size).map_err(ExecError::os("set the window size"))
    }

    /// Ends all processes of the exec. Returns when the last one has exited.
    pub async fn end(&self, cause: ExitCause, grace: Duration) -> Result<(), ExecError> {
        {
            let mut state = self.lock();
            if state.phase == Phase::Running {
                state.cause.get_or_insert(cause);
            }
        }
        Ok(tree::end(self.keeper, self.gone.clone(), grace).await?)
    }

    /// Resolves when no process of the exec is left.
    pub fn gone(&self) -> Gone {
        self.gone.clone()
    }

    /// Drops the events; the supervisor keeps running and stores no new ones.
    pub fn forget(&self) {
        let mut state = self.lock();
        state.is_forgotten = true;
        state.events.clear();
        wake(&mut state.supervisor_waker);
        wake(&mut state.follower_waker);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For the supervisor.
impl Exec {
    /// Records that the leader runs.
    pub fn started(&self, pid: u32) {
        let mut state = self.lock();
        state.leader = i32::try_from(pid).ok().and_then(Pid::from_raw);
        state.push(Event::Started(Started { pid }));
    }

    /// Stores a chunk of output as an event.
    pub fn output(&self, chunk: Chunk) {
        let Chunk { stream, data } = chunk;
        self.lock().push(Event::Output(Output {
            stream: stream.into(),
            data,
        }));
    }

    /// Waits until there is room for output; returns how many bytes.
    pub async fn room(&self) -> usize {
        std::future::poll_fn(|cx| self.poll_room(cx)).await
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.lock();
        let room = if state.is_forgotten {
            CHUNK_BYTES_MAX
        } else {
            state.events.room()
        };
        if room > 0 {
            return Poll::Ready(room);
        }
        state.supervisor_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Records that the leader has exited, or could not be started.
    pub fn leader_ended(&self) {
        let mut state = self.lock();
        state.phase = Phase::Draining;
        state.leader = None;
        drop(state);
        self.input.end();
    }

    /// Stores the last event. If the agent ended the exec, its cause replaces the one in `exit`.
    pub fn finish(&self, mut exit: Exit) {
        let mut state = self.lock();
        if let Some(cause) = state.cause.filter(|_| exit.start_error.is_none()) {
            exit.cause = cause.into();
        }
        state.phase = Phase::Finished;
        state.terminal = None;
        state.push(Event::Exit(exit));
    }
}

/// For followers.
impl Exec {
    /// Makes the caller the follower of the events after `seq`; the previous one ends.
    pub fn follow(&self, seq: u64) -> Result<u64, ExecError> {
        let mut state = self.lock();
        state.events.check_resume(seq)?;
        state.follower += 1;
        state.follower_error = None;
        wake(&mut state.follower_waker);
        Ok(state.follower)
    }

    /// The event after `seq`, as soon as there is one; `None` after the last.
    pub fn poll_event(
        &self,
        follower: u64,
        seq: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ExecEvent, ExecError>>> {
        let mut state = self.lock();
        if state.follower != follower {
            return Poll::Ready(Some(Err(ExecError::TakenOver)));
        }
        if let Some(follower_error) = state.follower_error {
            return Poll::Ready(Some(Err(follower_error.into())));
        }
        if let Some(event) = state.events.after(seq) {
            return Poll::Ready(Some(Ok(event.clone())));
        }
        if state.is_forgotten {
            return Poll::Ready(Some(Err(ExecError::NotFound)));
        }
        if state.phase == Phase::Finished {
            return Poll::Ready(None);
        }
        state.follower_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ends a follower that sent something other than an acknowledgement.
    pub fn refuse(&self, follower: u64) {
        let mut state = self.lock();
        if state.follower == follower {
            state.follower_error = Some(FollowerError::NotAnAck);
            wake(&mut state.follower_waker);
        }
    }

    /// Acknowledges events up to `seq`; returns whether more acknowledgements can follow.
    pub fn ack(&self, follower: u64, seq: u64) -> bool {
        let mut state = self.lock();
        if state.follower != follower {
            return false;
        }
        if let Err(error) = state.events.ack(seq) {
            state.follower_error = Some(FollowerError::Seq(error));
            wake(&mut state.follower_waker);
            return false;
        }
        wake(&mut state.supervisor_waker);
        state.phase != Phase::Finished || state.events.acked() < state.events.last()
    }
}

/// Why a follower was ended.
#[derive(Debug, Clone, Copy)]
enum FollowerError {
    Seq(SeqError),
    NotAnAck,
}

impl From<FollowerError> for ExecError {
    fn from(follower_error: FollowerError) -> Self {
        match follower_error {
            FollowerError::Seq(error) => error.into(),
            FollowerError::NotAnAck => Self::Request("requests after the first must be acks"),
        }
    }
}

impl State {
    fn new(terminal: Option<Fd>) -> Self {
        Self {
            events: Events::default(),
            phase: Phase::Running,
            leader: None,
            cause: None,
            terminal,
            follower: 0,
            follower_error: None,
            is_forgotten: false,
            follower_waker: None,
            supervisor_waker: None,
        }
    }

    fn push(&mut self, event: Event) {
        if self.is_forgotten {
            return;
        }
        self.events.push(unix_ms(), event);
        wake(&mut self.follower_waker);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
