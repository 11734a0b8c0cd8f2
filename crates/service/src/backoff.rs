//! Waiting before trying again.

use std::time::Duration;

/// After the first failure.
const FIRST: Duration = Duration::from_millis(5);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(1);

/// How long to wait before the next attempt: twice as long after each failure in a row.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    /// Nothing has failed yet.
    pub(crate) fn new() -> Self {
        Self(FIRST)
    }

    /// It went well for a while.
    pub(crate) fn reset(&mut self) {
        self.0 = FIRST;
    }

    /// Waits.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}
