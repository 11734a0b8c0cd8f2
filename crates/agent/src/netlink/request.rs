//! Parses a notified `socket` call.

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType};

use crate::sys::Notification;

/// The bits of a socket type that are not flags.
const TYPE_MASK: i32 = 0xf;

/// A request for a netlink route socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Identifies the notification in the answer.
    pub(crate) id: u64,
    /// `SOCK_RAW` or `SOCK_DGRAM`.
    pub(crate) kind: SocketType,
    pub(crate) is_nonblocking: bool,
    pub(crate) is_cloexec: bool,
}

impl Request {
    /// Parses the arguments as the kernel would; the filter has already checked family and
    /// protocol.
    pub(crate) fn parse(notification: &Notification) -> Result<Self, Errno> {
        // The kernel reads an `int`.
        let bytes = notification.args[1].to_ne_bytes();
        let kind = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let flags = kind & !TYPE_MASK;
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Err(Errno::INVAL);
        }
        let kind = match kind & TYPE_MASK {
            libc::SOCK_RAW => SocketType::RAW,
            libc::SOCK_DGRAM => SocketType::DGRAM,
            _ => return Err(Errno::SOCKTNOSUPPORT),
        };
        Ok(Self {
            id: notification.id,
            kind,
            is_nonblocking: flags & libc::SOCK_NONBLOCK != 0,
            is_cloexec: flags & libc::SOCK_CLOEXEC != 0,
        })
    }

    /// The flags of our own copy: never inherited by processes that we start.
    pub(crate) fn creation_flags(self) -> SocketFlags {
        let mut flags = SocketFlags::CLOEXEC;
        flags.set(SocketFlags::NONBLOCK, self.is_nonblocking);
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: u64) -> Result<Request, Errno> {
        Request::parse(&Notification {
            id: 7,
            tid: 1,
            args: [16, kind, 0, 0, 0, 0],
        })
    }

    #[test]
    fn types_and_flags_are_those_of_the_kernel() {
        let raw = Request {
            id: 7,
            kind: SocketType::RAW,
            is_nonblocking: false,
            is_cloexec: false,
        };
        assert_eq!(parsed(3), Ok(raw));
        // The kernel ignores the upper half.
        assert_eq!(parsed(0xdead_0000_0003), Ok(raw));
        let all = Request {
            kind: SocketType::DGRAM,
            is_nonblocking: true,
            is_cloexec: true,
            ..raw
        };
        assert_eq!(parsed(2 | 0o2_000_000 | 0o4_000), Ok(all));
    }

    #[test]
    fn other_types_and_flags_are_refused_as_the_kernel_refuses_them() {
        for kind in [0, 1, 4, 5, 6, 10, 15] {
            assert_eq!(parsed(kind), Err(Errno::SOCKTNOSUPPORT), "{kind}");
        }
        for kind in [0x13, 0xffff_fff3, 0x8000_0003] {
            assert_eq!(parsed(kind), Err(Errno::INVAL), "{kind}");
        }
    }
}
