//! How much a run may ask of other servers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Failure;

/// Principals whose calls are counted at a time; beyond that, the idlest is forgotten.
const PRINCIPALS_MAX: usize = 4096;

/// A result that is longer is not kept for a run that continues this one.
const KEPT_RESULT_BYTES_MAX: u64 = 1 << 20;

/// Results of one run that are kept. With the number of runs that are, this bounds what a principal
/// can make the database hold.
const KEPT_BYTES_MAX: u64 = 8 << 20;

const MINUTE: Duration = Duration::from_mins(1);

/// Limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Calls of tools in total.
    pub calls_max: u64,
    /// Bytes of arguments and results together.
    pub bytes_max: u64,
    /// Calls at the same time; further ones wait.
    pub parallel_max: usize,
    /// Calls of one principal within a minute, in all its runs.
    pub per_minute_max: u32,
    /// One call.
    pub call_timeout: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            calls_max: 10_000,
            bytes_max: 1 << 30,
            parallel_max: 64,
            per_minute_max: 60_000,
            call_timeout: Duration::from_mins(2),
        }
    }
}

/// What a run has used.
#[derive(Debug, Default)]
pub(crate) struct Used(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    calls: u64,
    bytes: u64,
    kept_bytes: u64,
}

impl Used {
    pub(crate) fn take_call(&self, budget: &Budget) -> Result<(), Failure> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.calls >= budget.calls_max {
            return Err(Failure::exhausted(format!(
                "this run has made {} calls, and its budget is {}",
                used.calls, budget.calls_max
            )));
        }
        used.calls += 1;
        Ok(())
    }

    /// Whether a result of so many bytes is kept.
    pub(crate) fn keep(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = used.kept_bytes.saturating_add(bytes) <= KEPT_BYTES_MAX;
        let is_kept = bytes <= KEPT_RESULT_BYTES_MAX && has_room;
        used.kept_bytes += if is_kept { bytes } else { 0 };
        is_kept
    }

    pub(crate) fn take_bytes(&self, bytes: usize, budget: &Budget) -> Result<(), Failure> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.bytes = used.bytes.saturating_add(bytes as u64);
        if used.bytes > budget.bytes_max {
            return Err(Failure::exhausted(format!(
                "the calls of this run have moved {} bytes, and their budget is {}",
                used.bytes, budget.bytes_max
            )));
        }
        Ok(())
    }
}

/// Calls within the last minute, by principal.
#[derive(Debug, Default)]
pub struct CallRate(Mutex<HashMap<String, Window>>);

/// Calls counted by the second.
#[derive(Debug, Default)]
struct Window {
    seconds: VecDeque<(Instant, u32)>,
    sum: u32,
}

impl CallRate {
    /// Counts a call, or refuses it.
    pub(crate) fn take(&self, principal: &str, per_minute_max: u32) -> Result<(), Failure> {
        let now = Instant::now();
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= PRINCIPALS_MAX && !windows.contains_key(principal) {
            windows.retain(|_, window| window.count(now) > 0);
            if windows.len() >= PRINCIPALS_MAX {
                return Err(Failure::exhausted("too many callers at once; try again"));
            }
        }
        let window = windows.entry(principal.to_owned()).or_default();
        if window.count(now) >= per_minute_max {
            return Err(Failure::exhausted(format!(
                "you have made {per_minute_max} calls within a minute, which is the limit; wait a little"
            )));
        }
        window.add(now);
        Ok(())
    }
}

impl Window {
    fn count(&mut self, now: Instant) -> u32 {
        while let Some((at, calls)) = self.seconds.front()
            && now.duration_since(*at) >= MINUTE
        {
            self.sum -= calls;
            self.seconds.pop_front();
        }
        self.sum
    }

    fn add(&mut self, now: Instant) {
        self.sum += 1;
        match self.seconds.back_mut() {
            Some((at, calls)) if now.duration_since(*at) < Duration::from_secs(1) => *calls += 1,
            _ => self.seconds.push_back((now, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_minute_are_counted_per_principal() {
        let rate = CallRate::default();
        for _ in 0..3 {
            rate.take("a", 3).unwrap();
        }
        assert_eq!(rate.take("a", 3).unwrap_err().code, "resource_exhausted");
        rate.take("b", 3).unwrap();
        tokio::time::advance(MINUTE).await;
        rate.take("a", 3).unwrap();
    }

    #[test]
    fn no_more_results_are_kept_than_their_sum_allows() {
        let used = Used::default();
        let largest = usize::try_from(KEPT_RESULT_BYTES_MAX).unwrap();
        assert!(!used.keep(largest + 1));
        assert!((0..8).all(|_| used.keep(largest)));
        assert!(!used.keep(1));
        assert!(used.keep(0));
    }

    #[test]
    fn a_run_has_so_many_calls_and_bytes() {
        let budget = Budget {
            calls_max: 2,
            bytes_max: 10,
            ..Budget::default()
        };
        let used = Used::default();
        used.take_call(&budget).unwrap();
        used.take_call(&budget).unwrap();
        assert!(used.take_call(&budget).is_err());
        used.take_bytes(10, &budget).unwrap();
        assert!(used.take_bytes(1, &budget).is_err());
    }
}
