//! Long work, away from the thread that serves the execs.
//!
//! A job whose caller has gone is told by its `Stop` and ends at the next entry it
//! looks at, so that no walk outlives the call it was for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::Error;

/// Whether the caller has gone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Fails once the caller has gone.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }
}

/// Runs a job on a blocking thread. Dropping the future asks the job to stop.
pub async fn run<T, J>(job: J) -> Result<T, Error>
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
        self.0.0.store(true, Ordering::Relaxed);
    }
}
