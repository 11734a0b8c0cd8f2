//! The limit on netlink sockets, and their current number.

use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

/// Netlink sockets per container.
pub(crate) const SOCKETS_MAX: usize = 32;

/// Allowed even if the host permits huge buffers.
pub(crate) const SOCKETS_MIN: usize = 4;

/// Kernel memory that all of them together may hold outside the container's memory limit.
pub(crate) const UNREAD_BYTES_MAX: usize = 64 << 20;

/// More than any host allows; the kernel reduces it to its maximum, and doubles that.
const ENDLESS_BUFFER_BYTES: usize = 1 << 30;

/// The number of sockets per protocol in this network namespace.
const PROTOCOLS: &str = "/proc/net/protocols";

/// How many sockets are allowed with the host's current settings: as many as hold at most
/// [`UNREAD_BYTES_MAX`] if each gets the largest receive buffer.
pub(crate) fn sockets_max() -> io::Result<usize> {
    Ok(for_buffers_of(largest_buffer_bytes()?))
}

fn for_buffers_of(bytes: usize) -> usize {
    (UNREAD_BYTES_MAX / bytes.max(1)).clamp(SOCKETS_MIN, SOCKETS_MAX)
}

/// A container cannot read `net.core.rmem_max`, so this sets the maximum on a socket and reads it
/// back.
fn largest_buffer_bytes() -> io::Result<usize> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, ENDLESS_BUFFER_BYTES)?;
    Ok(sockopt::socket_recv_buffer_size(&socket)?)
}

/// The number of netlink sockets in this network namespace. `/proc/net/netlink` would not do: it
/// lists only bound sockets, and an unbound one can be bound later.
pub(crate) fn sockets_now() -> io::Result<usize> {
    let text = std::fs::read_to_string(PROTOCOLS)?;
    parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse(protocols: &str) -> Option<usize> {
    let mut lines = protocols.lines().map(str::split_whitespace);
    let mut columns = lines.next()?;
    let column = columns.position(|name| name == "sockets")?;
    let mut netlink = lines.find(|line| line.clone().next() == Some("NETLINK"))?;
    netlink.nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_buffers_the_fewer_the_sockets() {
        for (rmem_max, sockets) in [
            (212_992, 32),
            (1 << 20, 32),
            (4 << 20, 8),
            (16 << 20, 4),
            (1 << 30, 4),
        ] {
            assert_eq!(for_buffers_of(2 * rmem_max), sockets, "{rmem_max}");
        }
        assert_eq!(for_buffers_of(0), SOCKETS_MAX);
    }

    #[test]
    fn the_count_is_found_by_its_column() {
        let text = "\
protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de sh ss gs se re bi br ha uh gp em
PACKET    1536      0      -1   NI       0   no   kernel      n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n
UNIX      1088     44      -1   NI       0   yes  kernel      y  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n
NETLINK   1128     17      -1   NI       0   no   kernel      n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n
";
        assert_eq!(parse(text), Some(17));
        for broken in [
            "",
            "protocol size\nNETLINK 1 2",
            "sockets\nnothing",
            "x sockets\nNETLINK -1",
        ] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_socket_counts_before_it_is_bound() {
        let before = sockets_now().expect("the kernel tells");
        let flags = SocketFlags::CLOEXEC;
        let held: Vec<_> = (0..200)
            .map(|_| socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None))
            .collect();
        assert!(held.iter().all(Result::is_ok));
        // Other processes on this host open and close sockets meanwhile.
        assert!(sockets_now().expect("the kernel tells") >= before + 100);
    }

    #[test]
    fn a_buffer_has_a_largest_size() {
        let bytes = largest_buffer_bytes().expect("sockets can be made");
        assert!(
            (1 << 12..ENDLESS_BUFFER_BYTES * 2).contains(&bytes),
            "{bytes}"
        );
    }
}
