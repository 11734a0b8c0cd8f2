//! The queue of events for the writer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Most queued events. Each operation waits for its own event, so there are rarely more events than
/// operations; further ones are dropped and counted, which the ledger records.
pub(crate) const QUEUE_EVENTS_MAX: usize = 16 << 10;

/// Above this length, operations that would add an event wait before they begin.
pub(crate) const QUEUE_EVENTS_HIGH: usize = QUEUE_EVENTS_MAX / 2;

/// The writer's pause before a retry.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// A queued event.
pub(crate) struct Waiting {
    /// The fields after the sequence number.
    pub(crate) fields: String,
    /// When it was recorded.
    pub(crate) since: Instant,
    /// Notified when the event is written.
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
    /// Events dropped because the queue was full.
    left_out: u64,
    is_closed: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or counts it as dropped if the queue is full.
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

    /// Waits for events and takes all of them, with the number of dropped ones; `None` when the
    /// queue is closed and empty.
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

    /// Puts events back, before those that arrived meanwhile.
    pub(crate) fn put_back(&self, mut events: VecDeque<Waiting>, left_out: u64) {
        let mut state = self.state();
        events.append(&mut state.events);
        state.events = events;
        state.left_out += left_out;
    }

    /// Waits before a retry; returns whether the queue was closed meanwhile.
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
