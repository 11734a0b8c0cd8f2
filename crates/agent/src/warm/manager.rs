//! Starts the zygote when it is needed, keeps one spare ready, and restarts the zygote after it
//! ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::key::Key;
use super::spare::Spare;
use super::zygote::Zygote;
use super::{Phase, Shared, State};
use crate::log;

/// Zygotes in a row that ended before any of their spares was used. Then no more are started.
const FAILURES_MAX: u32 = 5;

/// The pause after the first failure; doubles with each one.
const PAUSE: Duration = Duration::from_millis(200);

/// The time between the start of a script and the fork of the next spare, unless an exec waits for one:
/// the script has the processors to itself, and so has what its caller does next.
const FORK_DELAY: Duration = Duration::from_millis(10);

/// Manages the container's zygotes until they are given up or closed.
pub(super) async fn manage(shared: Arc<Shared>) {
    let mut failures = 0;
    while let Some(key) = shared.until_wanted().await {
        match shared.serve(&key).await {
            End::Interrupted => {}
            End::Used => failures = 0,
            End::Unused => failures += 1,
        }
        if failures == FAILURES_MAX {
            log::line(format_args!("Python cannot be warmed up here"));
            break;
        }
        tokio::time::sleep(PAUSE * 2_u32.pow(failures)).await;
    }
    shared.lock().phase = Phase::GivenUp;
    shared.changed();
}

/// How a zygote ended.
enum End {
    /// An exec was started before the zygote was ready.
    Interrupted,
    /// It ended after a spare of it had run a script.
    Used,
    Unused,
}

impl Shared {
    /// Waits until a zygote is requested and no process of an exec is left; `None` once closed.
    async fn until_wanted(&self) -> Option<Key> {
        let mut changes = self.changes.subscribe();
        loop {
            let wanted = {
                let state = self.lock();
                if state.is_closed {
                    return None;
                }
                state.wanted
            };
            let Some(when) = wanted else {
                changes.changed().await.ok()?;
                continue;
            };
            tokio::time::sleep_until(when).await;
            self.table.until_empty().await;
            let mut state = self.lock();
            if state.is_closed {
                return None;
            }
            state.wanted = None;
            state.phase = Phase::Starting;
            return state.key.clone();
        }
    }

    /// Starts a zygote and keeps a spare ready until the zygote has ended.
    async fn serve(&self, key: &Key) -> End {
        let zygote = match Zygote::start(&self.table, key, self.data_bytes_max) {
            Ok(zygote) => zygote,
            Err(errno) => {
                log::line(format_args!(
                    "could not start a warmed interpreter: {errno}"
                ));
                self.set(Phase::Off);
                return End::Unused;
            }
        };
        let end = self.serve_by(&zygote).await;
        let mut state = self.lock();
        state.phase = Phase::Off;
        state.spare = None;
        // It was in use, so it will be needed again.
        if !matches!(end, End::Unused) {
            state.wanted = Some(Instant::now());
        }
        drop(state);
        self.changed();
        end
    }

    async fn serve_by(&self, zygote: &Zygote) -> End {
        tokio::select! {
            is_ready = zygote.ready() => if !is_ready {
                return End::Unused;
            },
            () = self.until_interrupted() => return End::Interrupted,
        }
        {
            let mut state = self.lock();
            if state.phase != Phase::Starting || state.is_closed {
                return End::Interrupted;
            }
            state.phase = Phase::Ready;
        }
        let mut end = End::Unused;
        loop {
            let Some(spare) = zygote.fork(&self.table).await else {
                return end;
            };
            let spare_ended = spare.ended();
            self.offer(spare);
            tokio::select! {
                () = self.until_spare_is_needed() => end = End::Used,
                () = spare_ended => self.lock().spare = None,
                () = zygote.ended() => return end,
            }
            if self.lock().is_closed {
                return end;
            }
            tokio::select! {
                () = tokio::time::sleep(FORK_DELAY) => {}
                () = self.until(|state| state.is_awaited || state.is_closed) => {}
                () = zygote.ended() => return end,
            }
        }
    }

    fn offer(&self, spare: Spare) {
        let mut state = self.lock();
        state.spare = Some(spare);
        state.is_awaited = false;
        drop(state);
        self.changed();
    }

    async fn until_interrupted(&self) {
        self.until(|state| state.phase != Phase::Starting || state.is_closed)
            .await;
    }

    /// Waits until the spare was taken or has ended.
    async fn until_spare_is_needed(&self) {
        self.until(|state| state.spare.is_none() || state.is_closed)
            .await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool + Send) {
        let mut changes = self.changes.subscribe();
        while !is_so(&self.lock()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn set(&self, phase: Phase) {
        self.lock().phase = phase;
        self.changed();
    }
}
