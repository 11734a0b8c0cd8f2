//! Long work, away from the thread that serves the execs.
//!
//! A job whose caller has gone is told by its `Stop` and ends at the next entry it
//! looks at, so that no walk outlives the call it was for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::Error;

/// How long something unfinished is cleared away before the rest of it stays: whoever
/// fills it meanwhile could keep us busy for ever.
const CLEANUP_TIME_MAX: Duration = Duration::from_secs(30);

/// Whether the caller has gone, or the time.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    gone: Arc<AtomicBool>,
    until: Option<Instant>,
}

impl Stop {
    /// For clearing away what nobody waits for.
    pub(super) fn cleanup() -> Self {
        Self {
            until: Some(Instant::now() + CLEANUP_TIME_MAX),
            ..Self::default()
        }
    }

    /// Fails once the caller or the time has gone.
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
