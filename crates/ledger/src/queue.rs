//! Events on their way to the writer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Events that wait. Each operation waits for its own, so there are seldom more than
/// operations; one more than this is counted and left out, and the ledger says so.
pub(crate) const QUEUE_EVENTS_MAX: usize = 16 << 10;

/// With more events waiting, operations that would add one wait before they begin.
pub(crate) const QUEUE_EVENTS_HIGH: usize = QUEUE_EVENTS_MAX / 2;

/// How long the writer waits before it tries again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// An event that is not written yet.
pub(crate) struct Waiting {
    /// Its fields after its number.
    pub(crate) fields: String,
    /// When it was recorded.
    pub(crate) since: Instant,
    /// Who is told when it is written.
    pub(crate) written: oneshot::Sender<()>,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    events: VecDeque<Waiting>,
    /// Events that found the queue full.
    left_out: u64,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or counts it if there is no room.
    pub(crate) fn push(&self, event: Waiting) {
        let mut state = self.state();
        if state.events.len() >= QUEUE_EVENTS_MAX {
            state.left_out += 1;
            return;
        }
        state.events.push_back(event);
        let is_first = state.events.len() == 1;
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().events.len()
    }

    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for events and takes all of them, with how many were left out; `None` when it is
    /// closed and empty.
    pub(crate) fn take(&self) -> Option<(VecDeque<Waiting>, u64)> {
        let mut state = self.state();
        while state.events.is_empty() && state.left_out == 0 {
            if state.is_closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Some((
            std::mem::take(&mut state.events),
            std::mem::take(&mut state.left_out),
        ))
    }

    /// Puts events back, in front of those that came meanwhile.
    pub(crate) fn put_back(&self, mut events: VecDeque<Waiting>, left_out: u64) {
        let mut state = self.state();
        events.append(&mut state.events);
        state.events = events;
        state.left_out += left_out;
    }

    /// Waits a little before the next attempt; whether it was closed meanwhile.
    pub(crate) fn pause(&self) -> bool {
        let state = self.state();
        if state.is_closed {
            return true;
        }
        let (state, _) = self
            .changed
            .wait_timeout_while(state, RETRY_INTERVAL, |state| !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        state.is_closed
    }
}
