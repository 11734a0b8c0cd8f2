//! How often an address has failed lately.
//!
//! The count decides nothing about valid tokens: behind a proxy all clients come from one
//! address, and one of them must not lock out the others. It decides what failures are
//! answered, and how loudly they are told.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures of one address in one window; more are answered 429.
const FAILURES_MAX: u32 = 100;

/// How long failures are counted together.
const WINDOW: Duration = Duration::from_mins(1);

/// When to come back after a 429.
pub(super) const RETRY_AFTER_S: u32 = 60;

/// Addresses that are counted. For one more, those of earlier windows are forgotten, and if
/// there are none, all.
const ADDRESSES_MAX: usize = 4096;

/// Failures by address.
#[derive(Debug, Default)]
pub(super) struct Failures {
    counts: Mutex<HashMap<IpAddr, Count>>,
}

#[derive(Debug)]
struct Count {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// Counts a failure, and answers whether there were too many.
    pub(super) fn count(&self, address: IpAddr, now: Instant) -> bool {
        let address = network(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= ADDRESSES_MAX && !counts.contains_key(&address) {
            counts.retain(|_, count| now.duration_since(count.since) < WINDOW);
            if counts.len() >= ADDRESSES_MAX {
                counts.clear();
            }
        }
        let new = || Count {
            since: now,
            failures: 0,
        };
        let count = counts.entry(address).or_insert_with(new);
        if now.duration_since(count.since) >= WINDOW {
            *count = new();
        }
        count.failures = count.failures.saturating_add(1);
        count.failures > FAILURES_MAX
    }
}

/// Who counts as one: an IPv4 address, or the IPv6 network that one customer usually has.
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
    use super::*;

    #[test]
    fn an_address_is_limited_for_a_window_and_no_other_with_it() {
        let (failures, start) = (Failures::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().expect("an address");
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
        let other: IpAddr = "192.0.2.2".parse().expect("an address");
        for _ in 0..FAILURES_MAX {
            assert!(!failures.count(one, start));
        }
        assert!(failures.count(one, start));
        assert!(failures.count(mapped, start));
        assert!(!failures.count(other, start));
        assert!(!failures.count(one, start + WINDOW));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let (failures, now) = (Failures::default(), Instant::now());
        let host = |number: u32| Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) + u128::from(number));
        for number in 0..FAILURES_MAX {
            assert!(!failures.count(host(number).into(), now));
        }
        assert!(failures.count(host(FAILURES_MAX).into(), now));
    }

    #[test]
    fn the_table_is_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..12_288 {
            failures.count(std::net::Ipv4Addr::from_bits(number).into(), now);
            assert!(failures.counts.lock().expect("nobody panics").len() <= ADDRESSES_MAX);
        }
    }
}
