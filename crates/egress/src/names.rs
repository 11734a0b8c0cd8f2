//! The loopback addresses under which a container reaches the names that it may reach.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use crate::HostName;

/// Names of one container.
pub(crate) const NAMES_MAX: usize = 1024;

/// New names of one container per minute that only a wildcard lists: each is a message to the
/// name servers of that domain.
const WILDCARD_NAMES_MAX: usize = 30;
const WILDCARD_WINDOW: Duration = Duration::from_mins(1);

/// The address where refused names lead: the broker answers there with the reason.
pub const REFUSAL: Ipv4Addr = Ipv4Addr::new(127, 77, 255, 253);

/// Where the proxy is, for programs that want one. No name leads here: a refused one on this port
/// stays a port where nobody listens.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 77, 255, 254), 3128);

/// Names and their addresses, which stay for the container's life.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<HostName, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, HostName>,
    wildcard: VecDeque<Instant>,
}

impl Names {
    pub(crate) fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, address: Ipv4Addr) -> Option<&HostName> {
        self.by_address.get(&address)
    }

    /// The address of a name; a new one if it has none. `None` if there are no more.
    pub(crate) fn assign(&mut self, name: &HostName) -> Option<Ipv4Addr> {
        if let Some(address) = self.address(name) {
            return Some(address);
        }
        let address = (1..=u16::try_from(2 * NAMES_MAX).unwrap_or(u16::MAX))
            .map(address)
            .find(|address| !self.by_address.contains_key(address))?;
        self.restore(name.clone(), address).then_some(address)
    }

    /// Takes over an assignment of an earlier server. Whether it is taken.
    pub(crate) fn restore(&mut self, name: HostName, address: Ipv4Addr) -> bool {
        let is_free = !self.by_address.contains_key(&address) && !self.by_name.contains_key(&name);
        let is_taken = is_free && self.by_name.len() < NAMES_MAX;
        if is_taken {
            self.by_address.insert(address, name.clone());
            self.by_name.insert(name, address);
        }
        is_taken
    }

    /// Whether one more name may be asked for that only a wildcard lists.
    pub(crate) fn admit_wildcard(&mut self, now: Instant) -> bool {
        while let Some(first) = self.wildcard.front()
            && now.duration_since(*first) >= WILDCARD_WINDOW
        {
            self.wildcard.pop_front();
        }
        let has_room = self.wildcard.len() < WILDCARD_NAMES_MAX;
        if has_room {
            self.wildcard.push_back(now);
        }
        has_room
    }
}

fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 77, high, low)
}

/// The address that a name for reverse lookup stands for: `1.0.77.127.in-addr.arpa`.
pub(crate) fn reverse(name: &HostName) -> Option<Ipv4Addr> {
    let digits = name.as_str().strip_suffix(".in-addr.arpa")?;
    let mut octets = digits.split('.').map(|digits| digits.parse::<u8>().ok());
    let mut next = || octets.next().flatten();
    let (d, c, b, a) = (next()?, next()?, next()?, next()?);
    octets.next().is_none().then(|| Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_addresses_run_out() {
        let mut names = Names::default();
        let name = |number: usize| HostName::parse(&format!("n{number}.example.com")).unwrap();
        let first = names.assign(&name(0)).unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 77, 0, 1));
        assert_eq!(names.assign(&name(0)), Some(first));
        for number in 1..NAMES_MAX {
            assert!(names.assign(&name(number)).is_some());
        }
        assert_eq!(names.assign(&name(NAMES_MAX)), None);
        assert_eq!(names.name(first), Some(&name(0)));
    }

    #[test]
    fn what_an_earlier_server_assigned_is_not_given_to_another_name() {
        let mut names = Names::default();
        let (old, new) = (
            HostName::parse("old.example.com"),
            HostName::parse("new.example.com"),
        );
        let (old, new) = (old.unwrap(), new.unwrap());
        assert!(names.restore(old.clone(), Ipv4Addr::new(127, 77, 0, 1)));
        assert!(!names.restore(new.clone(), Ipv4Addr::new(127, 77, 0, 1)));
        assert_eq!(names.assign(&new), Some(Ipv4Addr::new(127, 77, 0, 2)));
        assert_eq!(names.assign(&old), Some(Ipv4Addr::new(127, 77, 0, 1)));
    }

    #[test]
    fn names_below_a_wildcard_are_limited_per_minute() {
        let (mut names, now) = (Names::default(), Instant::now());
        assert!((0..WILDCARD_NAMES_MAX).all(|_| names.admit_wildcard(now)));
        assert!(!names.admit_wildcard(now));
        assert!(names.admit_wildcard(now + WILDCARD_WINDOW));
    }

    #[test]
    fn reverse_names_are_read() {
        let name = |text| HostName::parse(text).unwrap();
        assert_eq!(
            reverse(&name("1.0.77.127.in-addr.arpa")),
            Some(Ipv4Addr::new(127, 77, 0, 1))
        );
        for text in [
            "1.77.127.in-addr.arpa",
            "0.1.0.77.127.in-addr.arpa",
            "x.0.77.127.in-addr.arpa",
            "a.example.com",
        ] {
            assert_eq!(reverse(&name(text)), None, "{text}");
        }
    }
}
