//! Exponential backoff between attempts.

use std::time::Duration;

/// The default delay after the first failure.
const FIRST: Duration = Duration::from_millis(5);

/// The default maximum delay.
const LONGEST: Duration = Duration::from_secs(1);

/// The delay before the next attempt; doubles after each failure in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self::between(FIRST, LONGEST)
    }

    /// With delays from `first` to `longest`.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            next: first,
            longest,
        }
    }

    /// Starts over after success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits for the current delay. Dropped while waiting, the failure is not counted.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.longest);
    }
}
