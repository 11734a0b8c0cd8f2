//! The socket options that a container may set: all except those that cost the host something.

use super::program::{Action, Verdict};
use super::{REFUSED, is, is_among};

const LEVEL: u8 = 1;
const NAME: u8 = 2;

const SOL_SOCKET: u32 = 1;
const SOL_TCP: u32 = 6;

/// Packet filters: `SO_ATTACH_FILTER`, `SO_ATTACH_BPF`, `SO_ATTACH_REUSEPORT_CBPF` and
/// `SO_ATTACH_REUSEPORT_EBPF`. The kernel compiles them into memory that is scarce and charged to
/// nobody.
const FILTERS: [u32; 4] = [26, 50, 51, 52];

/// `TCP_MD5SIG`, `TCP_ULP`, `TCP_MD5SIG_EXT`, `TCP_AO_ADD_KEY`, `TCP_AO_DEL_KEY` and `TCP_AO_INFO`:
/// signed and encrypted segments, for which the host loads cryptographic modules; for the last
/// three, the caller chooses their names.
const CRYPTOGRAPHY: [u32; 6] = [14, 31, 32, 38, 39, 40];

/// The verdict on setting each option. Cryptographic options fail as on a kernel without them,
/// which programs can handle.
pub(crate) fn verdict() -> Verdict {
    let of = |level, names: &[u32]| vec![is(LEVEL, level), is_among(NAME, names)];
    Verdict::ByArguments(
        vec![
            (of(SOL_SOCKET, &FILTERS), REFUSED),
            (of(SOL_TCP, &CRYPTOGRAPHY), Action::Fail(libc::ENOPROTOOPT)),
        ],
        Action::Allow,
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;

    #[test]
    fn what_takes_memory_or_modules_of_the_host_cannot_be_set() {
        let set = |level: u64, name: u64| outcome(libc::SYS_setsockopt, &[3, level, name, 1, 4]);
        for name in [26, 50, 51, 52] {
            assert_eq!(set(1, name), Err(libc::EPERM), "{name}");
            assert_eq!(set(1 | 1 << 32, name | 1 << 32), Err(libc::EPERM), "{name}");
            assert_eq!(set(0, name), Ok(()), "{name} of another level");
        }
        for name in [14, 31, 32, 38, 39, 40] {
            assert_eq!(set(6, name), Err(libc::ENOPROTOOPT), "{name}");
            assert_eq!(set(1, name), Ok(()), "{name} of another level");
        }
        // SO_REUSEADDR, SO_RCVBUF, TCP_NODELAY, TCP_CONGESTION, IPV6_V6ONLY.
        for (level, name) in [(1, 2), (1, 8), (6, 1), (6, 13), (41, 26)] {
            assert_eq!(set(level, name), Ok(()), "{level} {name}");
        }
    }
}
