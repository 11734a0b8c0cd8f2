//! Waiting before trying again.

use std::time::Duration;

/// After the first failure, where nobody says otherwise.
const FIRST: Duration = Duration::from_millis(5);

/// The longest wait, where nobody says otherwise.
const LONGEST: Duration = Duration::from_secs(1);

/// How long to wait before the next attempt: twice as long after each failure in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Nothing has failed yet.
    pub(crate) fn new() -> Self {
        Self::between(FIRST, LONGEST)
    }

    /// The same, with waits from `first` to `longest`.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            next: first,
            longest,
        }
    }

    /// It went well for a while.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits. Dropped while it waits, it was as if nothing had failed.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.longest);
    }
}
