//! Which addresses may be dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, such as `10.1.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Masked to the prefix.
    base: u128,
    /// Counted in IPv6's 128 bits.
    prefix: u32,
}

/// Why a text is not a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a range as ADDRESS/PREFIX, such as 10.1.2.0/24, with no bits set behind the prefix")]
pub struct RangeError;

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (address, prefix) = text.split_once('/').ok_or(RangeError)?;
        let address: IpAddr = address.parse().map_err(|_| RangeError)?;
        let prefix: u32 = prefix.parse().map_err(|_| RangeError)?;
        let (bits, added) = match address {
            IpAddr::V4(_) => (32, 96),
            IpAddr::V6(_) => (128, 0),
        };
        let base = to_bits(address);
        let range = Self {
            base,
            prefix: prefix + added,
        };
        (prefix <= bits && base & range.mask() == base)
            .then_some(range)
            .ok_or(RangeError)
    }
}

impl Range {
    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0)
    }

    fn contains(self, address: IpAddr) -> bool {
        to_bits(address) & self.mask() == self.base
    }
}

/// IPv4 addresses count as `::ffff:a.b.c.d`.
fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().to_bits(),
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// Decides which addresses of a resolved name are dialled.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressRules {
    /// Ranges that the operator has opened.
    pub private: Vec<Range>,
    /// The host's own addresses: its firewall may trust connections from itself.
    pub own: Vec<IpAddr>,
}

impl AddressRules {
    /// Whether a connection may go to this address. Loopback, link-local (where clouds serve
    /// metadata) and multicast addresses are refused even inside an opened range.
    pub(crate) fn may_dial(&self, address: IpAddr) -> bool {
        let address = embedded_ipv4(address).map_or(address, IpAddr::V4);
        if is_never_dialled(address) {
            return false;
        }
        let is_open = self.private.iter().any(|range| range.contains(address));
        is_open || (is_global(address) && !self.is_own(address))
    }

    fn is_own(&self, address: IpAddr) -> bool {
        let own = self.own.iter().copied();
        own.map(|own| embedded_ipv4(own).map_or(own, IpAddr::V4))
            .any(|own| own == address)
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4. Teredo
/// addresses carry two, and are refused as a range.
fn embedded_ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(six) = address else {
        return None;
    };
    let octets = six.octets();
    let four =
        |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
    let segments = six.segments();
    match segments {
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0, 0, 1..=0xffff, _]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(four(12)),
        [0x2002, ..] => Some(four(2)),
        _ => None,
    }
}

fn is_never_dialled(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => {
            four.is_loopback()
                || four.is_link_local()
                || four.is_multicast()
                || four.is_broadcast()
                || four.octets()[0] == 0
        }
        IpAddr::V6(six) => {
            six.is_loopback()
                || six.is_unspecified()
                || six.is_multicast()
                || six.is_unicast_link_local()
                || is_metadata(six)
        }
    }
}

/// The address at which one large cloud serves metadata over IPv6.
fn is_metadata(six: Ipv6Addr) -> bool {
    six == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
}

fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_global_ipv4(four),
        IpAddr::V6(six) => is_global_ipv6(six),
    }
}

fn is_global_ipv4(four: Ipv4Addr) -> bool {
    !matches!(
        four.octets(),
        [0 | 10 | 127 | 224..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    )
}

/// Only `2000::/3` is given out to the public, and not all of that.
fn is_global_ipv6(six: Ipv6Addr) -> bool {
    let segments = six.segments();
    let is_assigned = segments[0] & 0xe000 == 0x2000;
    // 2001::/23 holds protocols such as Teredo and ORCHID; 2001:db8::/32 and 3fff::/20 examples.
    let is_special = matches!(segments, [0x2001, 0..=0x1ff | 0xdb8, ..])
        || (segments[0] == 0x3fff && segments[1] < 0x1000);
    is_assigned && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_dial(rules: &AddressRules, address: &str) -> bool {
        rules.may_dial(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_dialled() {
        let rules = AddressRules::default();
        for address in [
            "1.1.1.1",
            "151.101.0.223",
            "2606:4700::1",
            "100.63.0.1",
            "172.32.0.1",
        ] {
            assert!(may_dial(&rules, address), "{address}");
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_refused_in_every_spelling() {
        let rules = AddressRules::default();
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.77.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "5f00::1",
        ] {
            assert!(!may_dial(&rules, address), "{address}");
        }
    }

    #[test]
    fn an_opened_range_opens_private_addresses_but_neither_loopback_nor_metadata() {
        let ranges = ["10.1.2.0/24", "0.0.0.0/0", "::/0"];
        let private: Vec<Range> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let one = AddressRules {
            private: private[..1].to_vec(),
            own: Vec::new(),
        };
        assert!(may_dial(&one, "10.1.2.3"));
        assert!(may_dial(&one, "::ffff:10.1.2.3"));
        assert!(!may_dial(&one, "10.1.3.3"));
        let all = AddressRules {
            private,
            own: Vec::new(),
        };
        assert!(may_dial(&all, "10.9.9.9"));
        assert!(may_dial(&all, "fd00::1"));
        for address in [
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "fd00:ec2::254",
            "64:ff9b::7f00:1",
        ] {
            assert!(!may_dial(&all, address), "{address}");
        }
    }

    #[test]
    fn the_hosts_own_public_address_is_refused() {
        let own = vec![
            "::ffff:5.6.7.8".parse().unwrap(),
            "2606:4700::9".parse().unwrap(),
        ];
        let rules = AddressRules {
            private: Vec::new(),
            own,
        };
        assert!(!may_dial(&rules, "5.6.7.8"));
        assert!(!may_dial(&rules, "2606:4700::9"));
        assert!(may_dial(&rules, "5.6.7.9"));
    }

    #[test]
    fn a_range_is_an_address_and_a_prefix() {
        for text in [
            "10.0.0.0",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "::/129",
            "a/8",
            "10.0.0.0/",
            "",
        ] {
            assert_eq!(text.parse::<Range>(), Err(RangeError), "{text}");
        }
    }
}
