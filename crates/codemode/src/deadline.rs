//! How long a script may run. The time in which somebody decides on a call does not count.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) struct Deadline {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    at: Instant,
    /// Decisions that are awaited, and since when.
    pauses: usize,
    since: Instant,
}

/// Ends a pause when it is dropped.
pub(crate) struct Pause<'a>(&'a Deadline);

impl Deadline {
    pub(crate) fn new(timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            state: Mutex::new(State {
                at: now + timeout,
                pauses: 0,
                since: now,
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) fn pause(&self) -> Pause<'_> {
        let mut state = self.state();
        if state.pauses == 0 {
            state.since = Instant::now();
        }
        state.pauses += 1;
        drop(state);
        self.changed.notify_waiters();
        Pause(self)
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        let state = self.state();
        let now = if state.pauses > 0 {
            state.since
        } else {
            Instant::now()
        };
        state.at.saturating_duration_since(now)
    }

    pub(crate) async fn passed(&self) {
        loop {
            let changed = self.changed.notified();
            let at = {
                let state = self.state();
                (state.pauses == 0).then_some(state.at)
            };
            let passed = async {
                match at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = passed => {
                    let state = self.state();
                    if state.pauses == 0 && state.at <= Instant::now() {
                        return;
                    }
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.pauses -= 1;
        if state.pauses == 0 {
            let paused = state.since.elapsed();
            state.at += paused;
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_somebody_decides_does_not_count() {
        let deadline = Deadline::new(Duration::from_secs(10));
        let began = Instant::now();
        let pause = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let pause = deadline.pause();
            tokio::time::sleep(Duration::from_secs(100)).await;
            assert_eq!(deadline.left(), Duration::from_secs(6));
            drop(pause);
        };
        tokio::join!(deadline.passed(), pause);
        assert_eq!(began.elapsed(), Duration::from_secs(110));
    }
}
