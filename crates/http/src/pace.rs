//! The minimum rate of a body.
//!
//! Only time spent waiting for the client counts, so a client is not cut off for delays on our side
//! (waiting for memory, or for a slow container).

use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How slowly a client may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaceLimits {
    /// Allowed in addition to what the minimum rate gives.
    pub(crate) grace: Duration,
    pub(crate) bytes_per_s_min: u32,
    /// The longest single pause.
    pub(crate) pause_max: Duration,
    /// The sum of all pauses.
    pub(crate) total_max: Duration,
}

/// How much of a body has arrived, and how long we have waited for it.
#[derive(Debug)]
pub(crate) struct Pace {
    limits: PaceLimits,
    bytes: u64,
    waited: Duration,
}

/// The client is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl Pace {
    pub(crate) fn new(limits: PaceLimits) -> Self {
        Self {
            limits,
            bytes: 0,
            waited: Duration::ZERO,
        }
    }

    pub(crate) fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Waits for the next chunk, unless the client is too slow.
    pub(crate) async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, TooSlow> {
        let begun = Instant::now();
        let next = timeout(self.left(), next).await;
        self.waited += begun.elapsed();
        next.map_err(|_| TooSlow)
    }

    /// How long the next wait may be.
    fn left(&self) -> Duration {
        let limits = &self.limits;
        let rate = u64::from(limits.bytes_per_s_min.max(1));
        let earned = Duration::from_secs(self.bytes / rate);
        let total = limits.grace.saturating_add(earned).min(limits.total_max);
        total.saturating_sub(self.waited).min(limits.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LIMITS: PaceLimits = PaceLimits {
        grace: Duration::from_secs(5),
        bytes_per_s_min: 1000,
        pause_max: Duration::from_secs(20),
        total_max: Duration::from_mins(1),
    };

    /// How many chunks of this size arrive, one per `pause`, before it is too slow.
    async fn pieces(bytes: usize, pause: Duration) -> u32 {
        let mut pace = Pace::new(LIMITS);
        let mut count = 0;
        while count < 1000 && pace.wait(sleep(pause)).await.is_ok() {
            pace.came(bytes);
            count += 1;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_more_slowly_than_the_lowest_rate_is_cut_off_after_the_grace() {
        assert_eq!(pieces(1, Duration::from_millis(930)).await, 5);
        assert_eq!(pieces(0, Duration::from_secs(6)).await, 0);
        // Half the rate: the grace lasts twice as long.
        assert_eq!(pieces(500, Duration::from_millis(930)).await, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_up_goes_on_up_to_its_total() {
        assert_eq!(pieces(2000, Duration::from_millis(930)).await, 64);
        assert_eq!(pieces(1 << 20, Duration::from_millis(1)).await, 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_quickly_earns_no_long_pause() {
        let mut pace = Pace::new(LIMITS);
        pace.came(1 << 30);
        assert_eq!(
            pace.wait(sleep(Duration::from_secs(21))).await,
            Err(TooSlow)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_hold_up_does_not_count() {
        let mut pace = Pace::new(LIMITS);
        sleep(Duration::from_hours(1)).await;
        assert_eq!(pace.wait(sleep(Duration::from_secs(4))).await, Ok(()));
    }
}
