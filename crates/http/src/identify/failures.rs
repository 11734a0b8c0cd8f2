//! Counts recent authentication failures by address, and decides which get an event of their own.
//!
//! ```text
//! failure ─ among the first of its address, and of all? ─ yes ─▶ an event of its own
//!                              └─ no ─▶ counted ─ end of the window ─▶ one event with the count
//! ```
//!
//! So every failure is recorded, and yet a client that fails all the time cannot push other events
//! out of the audit log. The count does not affect valid tokens: behind a proxy all clients come
//! from one address, and one of them must not lock out the others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_auth::{FailedAttempts, Failure};

/// Failures of one address per window that get an event of their own. Guesses beyond this number
/// are answered with 429.
const FAILURES_MAX: u32 = 100;

/// Failures of all addresses per window that get an event of their own.
const TOLD_MAX: u32 = 500;

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_mins(1);

/// The `Retry-After` of a 429.
pub(super) const RETRY_AFTER_S: u32 = 60;

/// Addresses per window that are counted separately; all others are counted together.
const ADDRESSES_MAX: usize = 4096;

/// Addresses whose count gets an event of its own; the counts of all others share one.
const COUNTS_TOLD_MAX: usize = 100;

/// Failures of the current window.
#[derive(Debug, Default)]
pub(super) struct Failures {
    window: Mutex<Option<Window>>,
}

/// How one failure was recorded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// Whether the address must be rate-limited.
    pub(super) is_limited: bool,
    /// Whether the failure gets no event of its own.
    pub(super) is_counted: bool,
    /// Whether it is the first such failure of its window.
    pub(super) is_first_counted: bool,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    told: u32,
    has_counted: bool,
    by_address: HashMap<IpAddr, Count>,
    /// Failures of unknown addresses, and of those beyond [`ADDRESSES_MAX`].
    others: Count,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    failures: u32,
    guesses: u32,
    /// Failures without an event of their own, and the cause of the last one.
    untold: Option<(u64, Failure)>,
}

impl Failures {
    /// Counts a failure. Also returns the counts of the previous window, if that has ended.
    pub(super) fn count(
        &self,
        address: Option<IpAddr>,
        failure: Failure,
        now: Instant,
    ) -> (Noted, Vec<FailedAttempts>) {
        let ended = self.take_ended(now);
        let mut window = self.lock();
        let window = window.get_or_insert_with(|| Window::new(now));
        (window.count(address, failure), ended)
    }

    /// The counts of the window, if it has ended.
    pub(super) fn take_ended(&self, now: Instant) -> Vec<FailedAttempts> {
        let mut window = self.lock();
        let ended = window.take_if(|window| now.duration_since(window.since) >= WINDOW);
        ended.map_or_else(Vec::new, Window::untold)
    }

    /// The counts of the window, which is closed early.
    pub(super) fn take(&self) -> Vec<FailedAttempts> {
        self.lock().take().map_or_else(Vec::new, Window::untold)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Window>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn new(since: Instant) -> Self {
        Self {
            since,
            told: 0,
            has_counted: false,
            by_address: HashMap::new(),
            others: Count::default(),
        }
    }

    fn count(&mut self, address: Option<IpAddr>, failure: Failure) -> Noted {
        let is_full = self.by_address.len() >= ADDRESSES_MAX;
        let address = address.map(network);
        let (count, is_one) = match address {
            Some(address) if !is_full || self.by_address.contains_key(&address) => {
                (self.by_address.entry(address).or_default(), true)
            }
            _ => (&mut self.others, false),
        };
        count.failures = count.failures.saturating_add(1);
        count.guesses = count.guesses.saturating_add(failure.is_guess().into());
        let is_counted = count.failures > FAILURES_MAX || self.told >= TOLD_MAX;
        if is_counted {
            let before = count.untold.map_or(0, |(untold, _)| untold);
            count.untold = Some((before.saturating_add(1), failure));
        } else {
            self.told += 1;
        }
        Noted {
            is_limited: is_one && failure.is_guess() && count.guesses > FAILURES_MAX,
            is_counted,
            is_first_counted: is_counted && !std::mem::replace(&mut self.has_counted, is_counted),
        }
    }

    /// The counts of the addresses with most failures, and one count for all others.
    fn untold(self) -> Vec<FailedAttempts> {
        let counted = |(address, count): (IpAddr, Count)| {
            let (count, failure) = count.untold?;
            Some(FailedAttempts {
                address: Some(address),
                count,
                failure,
            })
        };
        let mut told: Vec<_> = self.by_address.into_iter().filter_map(counted).collect();
        told.sort_by_key(|one| (std::cmp::Reverse(one.count), one.address));
        let rest = told.split_off(told.len().min(COUNTS_TOLD_MAX));
        let rest = rest.into_iter().map(|one| (one.count, one.failure));
        let rest = rest.chain(self.others.untold);
        let together = |(sum, _): (u64, Failure), (count, last)| (sum.saturating_add(count), last);
        told.extend(
            rest.reduce(together)
                .map(|(count, failure)| FailedAttempts {
                    address: None,
                    count,
                    failure,
                }),
        );
        told
    }
}

/// The network that is counted as one client: an IPv4 address, or the IPv6 prefix that one customer
/// usually has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << 64);
            Ipv6Addr::from_bits(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const GUESS: Failure = Failure::Unknown;

    fn is_limited(failures: &Failures, address: IpAddr, now: Instant) -> bool {
        failures.count(Some(address), GUESS, now).0.is_limited
    }

    fn number(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn an_address_is_limited_for_a_window_and_no_other_with_it() {
        let (failures, start) = (Failures::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().expect("an address");
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
        let other: IpAddr = "192.0.2.2".parse().expect("an address");
        for _ in 0..FAILURES_MAX {
            assert!(!is_limited(&failures, one, start));
        }
        assert!(is_limited(&failures, one, start));
        assert!(is_limited(&failures, mapped, start));
        assert!(!is_limited(&failures, other, start));
        assert!(!is_limited(&failures, one, start + WINDOW));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let (failures, now) = (Failures::default(), Instant::now());
        let host = |number: u32| Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) + u128::from(number));
        for number in 0..FAILURES_MAX {
            assert!(!is_limited(&failures, host(number).into(), now));
        }
        assert!(is_limited(&failures, host(FAILURES_MAX).into(), now));
    }

    #[test]
    fn requests_without_a_token_are_not_limited_but_only_counted() {
        let (failures, now) = (Failures::default(), Instant::now());
        for attempt in 0..3 * FAILURES_MAX {
            let (counted, _) = failures.count(Some(number(1)), Failure::Missing, now);
            assert!(!counted.is_limited, "{attempt}");
            assert_eq!(counted.is_counted, attempt >= FAILURES_MAX, "{attempt}");
            assert_eq!(counted.is_first_counted, attempt == FAILURES_MAX);
        }
    }

    #[test]
    fn each_failure_is_told_or_counted_once() {
        let (failures, now) = (Failures::default(), Instant::now());
        let mut told = 0;
        // One address fails often, very many fail now and then, and some are unknown.
        let often = std::iter::repeat_n(Some(number(1)), 10_000);
        let seldom = (0..20_000).map(|at| Some(number(at)));
        let unknown = std::iter::repeat_n(None, 500);
        let all: Vec<_> = often.chain(seldom).chain(unknown).collect();
        for address in &all {
            let (counted, ended) = failures.count(*address, GUESS, now);
            assert_eq!(ended, [], "the window goes on");
            told += u64::from(!counted.is_counted);
        }
        assert!(told <= TOLD_MAX.into(), "{told}");
        assert_eq!(failures.take_ended(now + WINDOW / 2), []);
        let ended = failures.take_ended(now + WINDOW);
        assert!(ended.len() <= COUNTS_TOLD_MAX + 1, "{}", ended.len());
        assert_eq!(ended[0].address, Some(number(1)));
        assert_eq!(ended[0].count, 10_000 + 1 - u64::from(FAILURES_MAX));
        let counted: u64 = ended.iter().map(|one| one.count).sum();
        assert_eq!(told + counted, all.len() as u64);
        assert_eq!(failures.take(), [], "it is told once");
    }

    #[test]
    fn the_table_is_bounded_and_those_in_it_stay_limited() {
        let (failures, now) = (Failures::default(), Instant::now());
        for _ in 0..=FAILURES_MAX {
            is_limited(&failures, number(0), now);
        }
        for at in 0..12_288 {
            failures.count(Some(number(at)), GUESS, now);
            let window = failures.lock();
            let known = window.as_ref().map_or(0, |window| window.by_address.len());
            assert!(known <= ADDRESSES_MAX, "{known}");
        }
        assert!(is_limited(&failures, number(0), now));
    }
}
