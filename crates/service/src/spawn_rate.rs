//! Limits how many containers each principal creates per minute.
//!
//! A leaky bucket: it leaks at the quota's rate and holds what the quota allows per minute. So a
//! principal may create that many containers at once, and then as many per minute as the quota
//! says.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hotcell_domain::{OverQuota, Principal, QuotaKind};

/// The period of the quota.
pub(crate) const WINDOW_MS: u64 = 60_000;

/// Empty buckets are dropped each time this many were added.
const BUCKETS_BETWEEN_SWEEPS: usize = 1024;

/// The buckets of all principals.
#[derive(Debug, Default)]
pub(crate) struct SpawnRates(Mutex<HashMap<Principal, Bucket>>);

/// One container fills [`WINDOW_MS`] of it, and each millisecond drains as many units as containers
/// are allowed per minute, so that all values are integers.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    filled: u64,
    at_unix_ms: u64,
}

impl SpawnRates {
    /// Counts a container that an earlier server created.
    pub(crate) fn restore(&self, principal: Principal, spawns: u64, now_unix_ms: u64) {
        let bucket = Bucket {
            filled: spawns.saturating_mul(WINDOW_MS),
            at_unix_ms: now_unix_ms,
        };
        self.lock().insert(principal, bucket);
    }

    /// Counts one more container, unless the bucket is full.
    pub(crate) fn take(
        &self,
        principal: &Principal,
        per_minute: u32,
        now_unix_ms: u64,
    ) -> Result<(), OverQuota> {
        let mut buckets = self.lock();
        if !buckets.contains_key(principal) && buckets.len().is_multiple_of(BUCKETS_BETWEEN_SWEEPS)
        {
            buckets.retain(|_, bucket| !bucket.is_over(now_unix_ms));
        }
        let bucket = buckets.entry(principal.clone()).or_insert(Bucket {
            filled: 0,
            at_unix_ms: now_unix_ms,
        });
        bucket.take(u64::from(per_minute), now_unix_ms)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, Bucket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn take(&mut self, per_minute: u64, now_unix_ms: u64) -> Result<(), OverQuota> {
        // If the clock was set back, nothing leaks.
        let elapsed_ms = now_unix_ms.saturating_sub(self.at_unix_ms);
        self.at_unix_ms = now_unix_ms;
        let leaked = elapsed_ms.saturating_mul(per_minute);
        // Clamped, so that after the quota was lowered the wait is not longer than a minute.
        let capacity = per_minute * WINDOW_MS;
        self.filled = self.filled.saturating_sub(leaked).min(capacity);
        if self.filled + WINDOW_MS <= capacity {
            self.filled += WINDOW_MS;
            return Ok(());
        }
        let too_much = self.filled + WINDOW_MS - capacity;
        Err(OverQuota {
            quota: QuotaKind::SpawnsPerMinute,
            limit: per_minute,
            used: self.filled.div_ceil(WINDOW_MS),
            retry_after_s: Some(too_much.div_ceil(per_minute.max(1)).div_ceil(1000)),
        })
    }

    /// Whether a minute has passed, after which every bucket is empty.
    fn is_over(self, now_unix_ms: u64) -> bool {
        now_unix_ms.saturating_sub(self.at_unix_ms) >= WINDOW_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotcell_domain::Name;

    const NOW: u64 = 1_800_000_000_000;

    fn ann() -> Principal {
        Principal::new(Name::parse("ann").unwrap())
    }

    #[test]
    fn a_minute_of_spawns_may_come_at_once_and_then_as_many_per_minute() {
        let rates = SpawnRates::default();
        for _ in 0..6 {
            rates.take(&ann(), 6, NOW).unwrap();
        }
        let refused = rates.take(&ann(), 6, NOW).unwrap_err();
        assert_eq!((refused.limit, refused.used), (6, 6));
        assert_eq!(refused.retry_after_s, Some(10));
        let refused = rates.take(&ann(), 6, NOW + 9_999).unwrap_err();
        assert_eq!(refused.retry_after_s, Some(1));
        rates.take(&ann(), 6, NOW + 10_000).unwrap();
        assert!(rates.take(&ann(), 6, NOW + 10_000).is_err());
        for _ in 0..6 {
            rates.take(&ann(), 6, NOW + 10_000_000).unwrap();
        }
        assert!(rates.take(&ann(), 6, NOW + 10_000_000).is_err());
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nobody_for_longer_than_a_minute() {
        let rates = SpawnRates::default();
        rates.take(&ann(), 1, NOW).unwrap();
        assert!(rates.take(&ann(), 1, 5).is_err());
        assert!(rates.take(&ann(), 1, 5 + 59_999).is_err());
        rates.take(&ann(), 1, 5 + 60_000).unwrap();
    }

    #[test]
    fn a_lowered_quota_is_waited_for_no_longer_than_a_minute() {
        let rates = SpawnRates::default();
        for _ in 0..100 {
            rates.take(&ann(), 100, NOW).unwrap();
        }
        assert!(rates.take(&ann(), 2, NOW + 1).is_err());
        rates.take(&ann(), 2, NOW + 1 + 60_000).unwrap();
    }

    #[test]
    fn what_an_earlier_server_created_counts() {
        let rates = SpawnRates::default();
        rates.restore(ann(), 6, NOW);
        assert!(rates.take(&ann(), 6, NOW).is_err());
        rates.take(&ann(), 7, NOW).unwrap();
    }

    #[test]
    fn those_who_come_no_more_are_forgotten() {
        let rates = SpawnRates::default();
        let name = |number: usize| Principal::new(Name::parse(&number.to_string()).unwrap());
        for number in 0..BUCKETS_BETWEEN_SWEEPS {
            rates.take(&name(number), 9, NOW).unwrap();
        }
        rates.take(&ann(), 9, NOW + WINDOW_MS).unwrap();
        assert_eq!(rates.lock().len(), 1);
    }
}
