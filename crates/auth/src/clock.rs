//! The clock, which tests can replace.

use std::time::{Duration, Instant, SystemTime};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Seconds since 1970, by this host's clock.
    fn unix_s(&self) -> u64;

    /// Time since some fixed moment. It never decreases, even if the host's clock is set.
    fn steady(&self) -> Duration;
}

/// The host's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn unix_s(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
}
