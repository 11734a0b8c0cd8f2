//! The host's own addresses, which containers must not reach through the broker.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Every address of this host's interfaces that the kernel lists.
pub(crate) fn read() -> Vec<IpAddr> {
    let four = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let six = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let four = ipv4(&four).into_iter().map(IpAddr::V4);
    let six = six.lines().filter_map(ipv6).map(IpAddr::V6);
    four.chain(six).collect()
}

/// An address stands in one line of the trie, and its kind in the next.
fn ipv4(trie: &str) -> Vec<Ipv4Addr> {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let pairs = lines.windows(2);
    let local = pairs.filter(|pair| pair[1].ends_with("host LOCAL"));
    let texts = local.filter_map(|pair| pair[0].strip_prefix("|-- "));
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn ipv6(line: &str) -> Option<Ipv6Addr> {
    let digits = line.split(' ').next().filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16)
        .ok()
        .map(Ipv6Addr::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_loopback_address() {
        assert!(read().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn the_kernels_lists_are_read() {
        let trie = "Local:\n  +-- 10.0.0.0/24 2 0 2\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.5\n        /32 host LOCAL\n";
        assert_eq!(ipv4(trie), [Ipv4Addr::new(10, 0, 0, 5)]);
        assert_eq!(
            ipv6("fe800000000000000000000000000001 02 40 20 80     eth0"),
            Some("fe80::1".parse().unwrap())
        );
        assert_eq!(ipv6("garbage"), None);
    }
}
