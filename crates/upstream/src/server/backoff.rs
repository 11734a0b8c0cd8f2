//! The pause before a server that failed is started again.

use std::time::{Duration, Instant};

use crate::bounds::{BACKOFF_FIRST, BACKOFF_MAX};
use crate::error::UpstreamError;
use crate::health::Health;
use crate::name::ServerName;

/// What is remembered of failures.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    reason: String,
    until: Option<Instant>,
}

impl Backoff {
    /// One more failure.
    pub(super) fn failed(&mut self, reason: &str) {
        let doubled = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        reason.clone_into(&mut self.reason);
        self.until = Some(Instant::now() + BACKOFF_FIRST.saturating_mul(doubled).min(BACKOFF_MAX));
    }

    /// It has run for long enough.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn remaining(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    pub(super) fn health(&self) -> Option<Health> {
        (self.failures > 0).then(|| Health::Failing {
            reason: self.reason.clone(),
            failures: self.failures,
            retry_in: self.remaining(),
        })
    }

    pub(super) fn error(&self, server: ServerName) -> UpstreamError {
        UpstreamError::BackOff {
            server,
            failures: self.failures,
            reason: self.reason.clone(),
            retry_in: self.remaining(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound_and_is_forgotten() {
        let mut backoff = Backoff::default();
        assert_eq!(
            (backoff.remaining(), backoff.health()),
            (Duration::ZERO, None)
        );
        let mut last = Duration::ZERO;
        for failure in 1..=40 {
            backoff.failed("x");
            let remaining = backoff.remaining();
            assert!(remaining <= BACKOFF_MAX, "{remaining:?}");
            assert!(failure > 7 || remaining > last, "{failure}: {remaining:?}");
            last = remaining;
        }
        assert!(last > BACKOFF_MAX / 2);
        backoff.forget();
        assert_eq!(backoff.remaining(), Duration::ZERO);
    }
}
