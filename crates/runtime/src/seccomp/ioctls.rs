//! The `ioctl` requests that a container may make, grouped by purpose.
//!
//! This is an allow-list, because drivers and filesystems keep adding requests. Some of the others
//! make the host load a kernel module (line disciplines, bridges, VLANs), others create what only
//! the host can remove (btrfs subvolumes, encryption keys).

use super::program::{Action, Verdict};
use super::{REFUSED, is, is_among, masked};

/// The index of the argument with the request; the kernel reads 32 bits of it.
const REQUEST: u8 = 1;

/// Fake terminal input, console commands, and setting a line discipline.
const OF_OTHER_TERMINALS: [u32; 3] = [TIOCSTI, TIOCLINUX, TIOCSETD];
pub(crate) const TIOCSTI: u32 = 0x5412;
pub(crate) const TIOCLINUX: u32 = 0x541c;
pub(crate) const TIOCSETD: u32 = 0x5423;

/// Speed and features of a network interface.
pub(crate) const SIOCETHTOOL: u32 = 0x8946;

/// The mask of a request's type, and the type of socket and network interface requests.
const KIND: u32 = 0xff00;
const OF_SOCKETS: u32 = 0x8900;

const TERMINALS: &[u32] = &[
    0x5401,      // TCGETS
    0x5402,      // TCSETS
    0x5403,      // TCSETSW
    0x5404,      // TCSETSF
    0x5405,      // TCGETA
    0x5406,      // TCSETA
    0x5407,      // TCSETAW
    0x5408,      // TCSETAF
    0x5409,      // TCSBRK
    0x540a,      // TCXONC
    0x540b,      // TCFLSH
    0x540c,      // TIOCEXCL
    0x540d,      // TIOCNXCL
    0x540e,      // TIOCSCTTY
    0x540f,      // TIOCGPGRP
    0x5410,      // TIOCSPGRP
    0x5411,      // TIOCOUTQ
    0x5413,      // TIOCGWINSZ
    0x5414,      // TIOCSWINSZ
    0x5420,      // TIOCPKT
    0x5422,      // TIOCNOTTY
    0x5424,      // TIOCGETD
    0x5425,      // TCSBRKP
    0x5427,      // TIOCSBRK
    0x5428,      // TIOCCBRK
    0x5429,      // TIOCGSID
    0x802c_542a, // TCGETS2
    0x402c_542b, // TCSETS2
    0x402c_542c, // TCSETSW2
    0x402c_542d, // TCSETSF2
    0x8004_5430, // TIOCGPTN
    0x4004_5431, // TIOCSPTLCK
    0x8004_5432, // TIOCGDEV
    0x4004_5436, // TIOCSIG
    0x8004_5438, // TIOCGPKT
    0x8004_5439, // TIOCGPTLCK
    0x8004_5440, // TIOCGEXCL
    0x5441,      // TIOCGPTPEER
];

/// For any descriptor.
const DESCRIPTORS: &[u32] = &[
    0x541b, // FIONREAD
    0x5421, // FIONBIO
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX
    0x5452, // FIOASYNC
    0x5460, // FIOQSIZE
];

/// Cloning extents and reading inode flags. Setting flags is not allowed: no common program needs
/// it, and on engines without user namespaces a project id would exempt files from a quota.
const FILES: &[u32] = &[
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0xc018_9436, // FIDEDUPERANGE
    0x8008_6601, // FS_IOC_GETFLAGS
    0x801c_581f, // FS_IOC_FSGETXATTR
    0x8008_7601, // FS_IOC_GETVERSION
];

/// Socket owner and queue sizes, and properties of the container's own interfaces. An unknown
/// interface name makes the host load a module only when host root asks.
const SOCKETS: &[u32] = &[
    0x8901,      // FIOSETOWN
    0x8902,      // SIOCSPGRP
    0x8903,      // FIOGETOWN
    0x8904,      // SIOCGPGRP
    0x8905,      // SIOCATMARK
    0x8906,      // SIOCGSTAMP
    0x8907,      // SIOCGSTAMPNS
    0x8010_8906, // SIOCGSTAMP_NEW
    0x8010_8907, // SIOCGSTAMPNS_NEW
    0x8910,      // SIOCGIFNAME
    0x8912,      // SIOCGIFCONF
    0x8913,      // SIOCGIFFLAGS
    0x8915,      // SIOCGIFADDR
    0x8917,      // SIOCGIFDSTADDR
    0x8919,      // SIOCGIFBRDADDR
    0x891b,      // SIOCGIFNETMASK
    0x891d,      // SIOCGIFMETRIC
    0x8921,      // SIOCGIFMTU
    0x8927,      // SIOCGIFHWADDR
    0x8933,      // SIOCGIFINDEX
    0x8935,      // SIOCGIFPFLAGS
    0x8938,      // SIOCGIFCOUNT
    0x8942,      // SIOCGIFTXQLEN
    0x894b,      // SIOCOUTQNSD
    0x8970,      // SIOCGIFMAP
];

/// The kernel's entropy count, which some libraries read before they start.
const RANDOM: &[u32] = &[0x8004_5200]; // RNDGETENTCNT

/// Answering seccomp notifications: `SECCOMP_IOCTL_NOTIF_RECV`, `SEND`, `ID_VALID` and `ADDFD`.
/// Only init has a listener.
const SUPERVISION: &[u32] = &[0xc050_2100, 0xc018_2101, 0x4008_2102, 0x4018_2103];

/// The verdict on each request.
///
/// A request that is not listed fails with `ENOTTY`, which programs that probe expect for a file
/// that is not a device. Changing an interface fails with `EPERM`, as the kernel would answer; its
/// speed is unknown, like that of a loopback interface.
pub(crate) fn verdict() -> Verdict {
    let allowed = [TERMINALS, DESCRIPTORS, FILES, SOCKETS, RANDOM, SUPERVISION].concat();
    let unknown = Action::Fail(libc::EOPNOTSUPP);
    Verdict::ByArguments(
        vec![
            (vec![is_among(REQUEST, &allowed)], Action::Allow),
            (vec![is_among(REQUEST, &OF_OTHER_TERMINALS)], REFUSED),
            (vec![is(REQUEST, SIOCETHTOOL)], unknown),
            (vec![masked(REQUEST, KIND, OF_SOCKETS)], REFUSED),
        ],
        Action::Fail(libc::ENOTTY),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    fn asked(request: u32) -> Result<(), i32> {
        // Like the kernel, the filter ignores the upper half.
        let plain = outcome(libc::SYS_ioctl, &[0, request.into()]);
        let padded = outcome(libc::SYS_ioctl, &[0, u64::from(request) | 7 << 32]);
        assert_eq!(plain, padded, "{request:#x}");
        plain
    }

    #[test]
    fn terminals_files_and_interfaces_can_be_asked() {
        let everyday = [
            libc::TCGETS,
            libc::TCSETSW,
            libc::TCGETS2,
            libc::TIOCGWINSZ,
            libc::TIOCSWINSZ,
            libc::TIOCSPTLCK,
            libc::TIOCGPTN,
            libc::TIOCGPTPEER,
            libc::TIOCSCTTY,
            libc::TIOCSPGRP,
            libc::FIONREAD,
            libc::FIONBIO,
            libc::FIOCLEX,
            libc::FICLONE,
            libc::FS_IOC_GETFLAGS,
            libc::SIOCGIFADDR,
            libc::SIOCGIFCONF,
            libc::SIOCGIFHWADDR,
            libc::SIOCGIFMTU,
        ];
        for request in everyday {
            let request = u32::try_from(request).expect("requests have 32 bits");
            assert_eq!(asked(request), Ok(()), "{request:#x}");
        }
    }

    #[test]
    fn what_loads_modules_or_changes_the_host_is_refused() {
        let bridges_and_vlans = [0x8940, 0x8941, 0x89a0, 0x89a1, 0x89a2, 0x8982, 0x8983];
        // SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFHWADDR, bonds, SIOCDEVPRIVATE.
        let changes = [0x8914, 0x8916, 0x8924, 0x8993, 0x89f0, 0x89ff];
        let terminals = [TIOCSTI, TIOCLINUX, TIOCSETD];
        let forbidden = [&bridges_and_vlans[..], &changes, &terminals].concat();
        for request in forbidden {
            assert_eq!(asked(request), Err(libc::EPERM), "{request:#x}");
        }
        assert_eq!(asked(SIOCETHTOOL), Err(libc::EOPNOTSUPP));
        // BTRFS_IOC_SUBVOL_CREATE and SNAP_CREATE_V2, FS_IOC_SETFLAGS, FSSETXATTR and
        // ADD_ENCRYPTION_KEY, FIFREEZE, FITRIM.
        let of_filesystems = [
            0x5000_940e,
            0x5000_9417,
            0x4008_6602,
            0x401c_5820,
            0xc0c0_6617,
            0xc004_5877,
            0xc018_5879,
        ];
        // TUNSETIFF, KVM_CREATE_VM, LOOP_SET_FD, NS_GET_USERNS, NS_GET_PARENT, RNDADDTOENTCNT.
        let of_devices = [0x4004_54ca, 0xae01, 0x4c00, 0xb701, 0xb702, 0x4004_5201];
        let of_nothing = [0, u32::MAX, TIOCSTI | 1 << 31];
        let absent = [&of_filesystems[..], &of_devices, &of_nothing].concat();
        for request in absent {
            assert_eq!(asked(request), Err(libc::ENOTTY), "{request:#x}");
        }
    }
}
