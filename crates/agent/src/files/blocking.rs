//! Runs long jobs away from the thread that serves execs.
//!
//! When the caller of a job disconnects, its `Stop` is set and the job ends at the next entry, so
//! that no tree walk outlives its call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::Error;

/// How long removing unfinished work may take. After that, leftovers stay: a process that keeps
/// adding files could keep us busy for ever.
const CLEANUP_TIME_MAX: Duration = Duration::from_secs(30);

/// Set when the caller has disconnected or the time is up.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    gone: Arc<AtomicBool>,
    until: Option<Instant>,
}

impl Stop {
    /// For clean-up that no caller waits for.
    pub(super) fn cleanup() -> Self {
        Self {
            until: Some(Instant::now() + CLEANUP_TIME_MAX),
            ..Self::default()
        }
    }

    /// Fails once the job should stop.
    pub(super) fn check(&self) -> Result<(), Error> {
        let is_late = self.until.is_some_and(|until| Instant::now() > until);
        if is_late || self.gone.load(Ordering::Relaxed) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Runs a job on a blocking thread. Dropping the future asks the job to stop.
pub(super) async fn run<T, J>(job: J) -> Result<T, Error>
where
    T: Send + 'static,
    J: FnOnce(&Stop) -> Result<T, Error> + Send + 'static,
{
    let guard = StopOnDrop(Stop::default());
    let stop = guard.0.clone();
    let joined = tokio::task::spawn_blocking(move || job(&stop)).await;
    joined.unwrap_or(Err(Error::Cancelled))
}

struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Relaxed);
    }
}
