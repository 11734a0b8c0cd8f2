//! The system calls that a container may make.
//!
//! This is an allow-list of what ordinary development needs. Other calls fail with `EPERM`. Calls
//! newer than this list, and `clone3`, whose flags a filter cannot read, fail with `ENOSYS`, so
//! that libraries fall back to older calls.

mod calls;
mod ioctls;
mod options;
mod program;

use std::collections::BTreeMap;

use libc::sock_filter;

use program::{Action, Condition, Half, Rule, Test, Verdict};

type Verdicts = BTreeMap<u32, Verdict>;

/// The verdict on every call that is on no list.
const REFUSED: Action = Action::Fail(libc::EPERM);

/// This filter has reviewed all calls below this number.
const FIRST_UNKNOWN: u32 = 450;
/// Unknown calls up to this number fail with `ENOSYS` instead of `EPERM`.
const LAST_UNKNOWN: u32 = 511;

/// Calls that do nothing and report success. They would write back all filesystems of the host, or
/// one that the container may not even write to. `fsync` works.
const PRETENDED: [i64; 2] = [libc::SYS_sync, libc::SYS_syncfs];

/// The flags of `clone` that create namespaces.
const NAMESPACES: u32 = 0x7e02_0000;

const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
const IOPRIO_WHO_PROCESS: u32 = 1;
const IOPRIO_WHO_PGRP: u32 = 2;
const INIT_PID: u32 = 1;

const RLIMIT_CORE: u32 = 4;

/// The personalities that change only what `uname` reports (32 bits, kernel version), and the value
/// that queries.
const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

const AF_UNIX: u32 = 1;
const AF_NETLINK: u32 = 16;
/// Netlink protocol for interfaces and routes, of which the container only sees its own.
const NETLINK_ROUTE: u32 = 0;
/// IPv4 and IPv6, each with its ICMP protocol.
const INTERNET_FAMILIES: [(u32, u32); 2] = [(2, 1), (10, 58)];
const TCP: u32 = 6;
const UDP: u32 = 17;
const DEFAULT_PROTOCOL: u32 = 0;

/// The bits of a socket type that are not flags.
const SOCKET_TYPE: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;

/// The `ptrace` requests that take options, in their three generations.
const PTRACE_WITH_OPTIONS: [u32; 3] = [21, 0x4200, 0x4206];
const PTRACE_O_TRACEEXIT: u32 = 0x40;

/// The flag that creates a listener. If a container could install a filter with one, its own
/// answers would take precedence over init's.
const SECCOMP_FILTER_FLAG_NEW_LISTENER: u32 = 1 << 3;

/// The seccomp filter of every container, compiled.
///
/// The kernel charges the receive queue of a netlink socket to no cgroup. So creating a netlink
/// socket is delegated to init, which limits their number.
pub(crate) struct SeccompFilters {
    /// Sends route socket creation to the listener.
    pub asking: Vec<sock_filter>,
    /// For kernels without listeners: refuses route sockets.
    pub refusing: Vec<sock_filter>,
}

impl SeccompFilters {
    /// Compiles the filters for this architecture.
    pub(crate) fn compile() -> Self {
        let compile = |routes| program::compile(&verdicts(routes), &Verdict::Always(REFUSED));
        Self {
            asking: compile(Action::Notify),
            refusing: compile(Action::Fail(libc::EAFNOSUPPORT)),
        }
    }
}

/// The filter as the bytes of its instructions, for engines that load it themselves with a
/// listener. Where they cannot have a listener, they must turn each `SECCOMP_RET_USER_NOTIF` into
/// an error.
pub fn filter() -> Vec<u8> {
    let bytes = |one: &sock_filter| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&one.code.to_ne_bytes());
        bytes[2..4].copy_from_slice(&[one.jt, one.jf]);
        bytes[4..].copy_from_slice(&one.k.to_ne_bytes());
        bytes
    };
    SeccompFilters::compile()
        .asking
        .iter()
        .flat_map(bytes)
        .collect()
}

/// All calls that are not simply refused; `routes` is the verdict on route sockets.
fn verdicts(routes: Action) -> Verdicts {
    let absent = || Verdict::Always(Action::Fail(libc::ENOSYS));
    let mut verdicts: Verdicts = (FIRST_UNKNOWN..=LAST_UNKNOWN)
        .map(|number| (number, absent()))
        .collect();
    verdicts.insert(call(libc::SYS_clone3), absent());
    for number in PRETENDED {
        verdicts.insert(call(number), Verdict::Always(Action::Pretend));
    }
    let allowed = calls::ALLOWED.iter();
    verdicts.extend(allowed.map(|number| (call(*number), Verdict::Always(Action::Allow))));
    let conditional = conditional(routes).into_iter();
    verdicts.extend(conditional.map(|(number, verdict)| (call(number), verdict)));
    verdicts
}

/// Calls that are judged by their arguments.
fn conditional(routes: Action) -> Vec<(i64, Verdict)> {
    let allowed_if = [
        (libc::SYS_clone, vec![vec![masked(0, NAMESPACES, 0)]]),
        (libc::SYS_socketpair, vec![vec![is(0, AF_UNIX)]]),
        (libc::SYS_ptrace, tracing()),
        (
            libc::SYS_personality,
            vec![vec![is_among(0, &PERSONALITIES)]],
        ),
        (
            libc::SYS_seccomp,
            vec![vec![masked(1, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0)]],
        ),
        (libc::SYS_mknodat, node_of(2)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, node_of(1)),
    ];
    let allowed_if = allowed_if.into_iter().chain(scheduling());
    let mut verdicts: Vec<_> = allowed_if
        .map(|(number, rules)| (number, allow_if(rules)))
        .collect();
    verdicts.extend([
        (libc::SYS_socket, sockets(routes)),
        (libc::SYS_ioctl, ioctls::verdict()),
        (libc::SYS_setsockopt, options::verdict()),
        (libc::SYS_setrlimit, limits()),
        (libc::SYS_prlimit64, limits_of_process()),
    ]);
    verdicts
}

/// A process may set its limits. Setting the core file limit does nothing and reports success: with
/// a limit of 0 the kernel would run the host's crash handler, as host root.
fn limits() -> Verdict {
    let core = vec![is(0, RLIMIT_CORE)];
    Verdict::ByArguments(vec![(core, Action::Pretend)], Action::Allow)
}

/// The same for `prlimit64`, and only for the calling process. Querying the core file limit works.
/// Setting and querying it in one call is refused, because nothing would fill in the old value.
fn limits_of_process() -> Verdict {
    const RESOURCE: u8 = 1;
    const NEW: u8 = 2;
    const OLD: u8 = 3;
    let own = || is(0, 0);
    let core = || is(RESOURCE, RLIMIT_CORE);
    let query = [vec![own(), core()], null(NEW)].concat();
    let set = [vec![own(), core()], null(OLD)].concat();
    let other = vec![own(), is_not(RESOURCE, RLIMIT_CORE)];
    Verdict::ByArguments(
        vec![
            (query, Action::Allow),
            (set, Action::Pretend),
            (other, Action::Allow),
        ],
        REFUSED,
    )
}

/// Allows the call if one of the rules matches, else refuses it.
fn allow_if(rules: Vec<Rule>) -> Verdict {
    let rules = rules.into_iter().map(|rule| (rule, Action::Allow));
    Verdict::ByArguments(rules.collect(), REFUSED)
}

/// Sockets that stay in the container's network namespace, with valid combinations of type and
/// protocol. Any other pair makes the host look for a kernel module, and `SOCK_PACKET` is an older
/// name for packet sockets.
fn sockets(routes: Action) -> Verdict {
    let mut rules = vec![
        (vec![is(0, AF_UNIX)], Action::Allow),
        (vec![is(0, AF_NETLINK), is(2, NETLINK_ROUTE)], routes),
    ];
    for (family, icmp) in INTERNET_FAMILIES {
        for (kind, protocols) in [
            (SOCK_STREAM, vec![DEFAULT_PROTOCOL, TCP]),
            (SOCK_DGRAM, vec![DEFAULT_PROTOCOL, UDP, icmp]),
        ] {
            let rule = vec![
                is(0, family),
                masked(1, SOCKET_TYPE, kind),
                is_among(2, &protocols),
            ];
            rules.push((rule, Action::Allow));
        }
    }
    Verdict::ByArguments(rules, REFUSED)
}

/// All options except the one that stops a process on exit: even SIGKILL does not wake it, only its
/// tracer does. Two processes that trace each other this way could never be killed, nor could their
/// container.
fn tracing() -> Vec<Rule> {
    let no_options = PTRACE_WITH_OPTIONS.map(|request| is_not(0, request));
    vec![vec![masked(3, PTRACE_O_TRACEEXIT, 0)], no_options.to_vec()]
}

/// Forbids to change the scheduling of init, or of all processes of a user, since init is one of
/// them.
fn scheduling() -> Vec<(i64, Vec<Rule>)> {
    let others = || vec![vec![is_not(0, INIT_PID)]];
    let other_than_init = |process, group| {
        vec![
            vec![is(0, process), is_not(1, INIT_PID)],
            vec![is(0, group), is_not(1, INIT_PID)],
        ]
    };
    vec![
        (libc::SYS_sched_setaffinity, others()),
        (libc::SYS_sched_setscheduler, others()),
        (libc::SYS_sched_setparam, others()),
        (libc::SYS_sched_setattr, others()),
        (
            libc::SYS_setpriority,
            other_than_init(PRIO_PROCESS, PRIO_PGRP),
        ),
        (
            libc::SYS_ioprio_set,
            other_than_init(IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP),
        ),
    ]
}

/// Allows files, pipes and sockets, but no devices.
fn node_of(mode_argument: u8) -> Vec<Rule> {
    let kinds = [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK];
    kinds
        .into_iter()
        .map(|kind| vec![masked(mode_argument, libc::S_IFMT, kind)])
        .collect()
}

fn is(argument: u8, value: u32) -> Condition {
    masked(argument, u32::MAX, value)
}

fn is_not(argument: u8, value: u32) -> Condition {
    low(argument, u32::MAX, Test::IsNot(value))
}

fn is_among(argument: u8, values: &[u32]) -> Condition {
    low(argument, u32::MAX, Test::IsAmong(values.to_vec()))
}

fn masked(argument: u8, mask: u32, value: u32) -> Condition {
    low(argument, mask, Test::Is(value))
}

fn low(argument: u8, mask: u32, test: Test) -> Condition {
    Condition {
        argument,
        half: Half::Low,
        mask,
        test,
    }
}

/// The argument is a null pointer: both halves are 0.
fn null(argument: u8) -> Rule {
    let high = Condition {
        half: Half::High,
        ..is(argument, 0)
    };
    vec![is(argument, 0), high]
}

fn call(number: i64) -> u32 {
    u32::try_from(number).expect("numbers of system calls are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_reach_the_host_is_not_on_the_list() {
        let dangerous = [
            ("unshare", libc::SYS_unshare),
            ("setns", libc::SYS_setns),
            ("mount", libc::SYS_mount),
            ("umount2", libc::SYS_umount2),
            ("pivot_root", libc::SYS_pivot_root),
            ("chroot", libc::SYS_chroot),
            ("open_tree", libc::SYS_open_tree),
            ("move_mount", libc::SYS_move_mount),
            ("fsopen", libc::SYS_fsopen),
            ("fsconfig", libc::SYS_fsconfig),
            ("fsmount", libc::SYS_fsmount),
            ("fspick", libc::SYS_fspick),
            ("mount_setattr", libc::SYS_mount_setattr),
            ("bpf", libc::SYS_bpf),
            ("perf_event_open", libc::SYS_perf_event_open),
            ("keyctl", libc::SYS_keyctl),
            ("add_key", libc::SYS_add_key),
            ("request_key", libc::SYS_request_key),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("io_uring_enter", libc::SYS_io_uring_enter),
            ("io_uring_register", libc::SYS_io_uring_register),
            ("userfaultfd", libc::SYS_userfaultfd),
            ("kexec_load", libc::SYS_kexec_load),
            ("init_module", libc::SYS_init_module),
            ("finit_module", libc::SYS_finit_module),
            ("delete_module", libc::SYS_delete_module),
            ("reboot", libc::SYS_reboot),
            ("swapon", libc::SYS_swapon),
            ("swapoff", libc::SYS_swapoff),
            ("acct", libc::SYS_acct),
            ("settimeofday", libc::SYS_settimeofday),
            ("clock_settime", libc::SYS_clock_settime),
            ("open_by_handle_at", libc::SYS_open_by_handle_at),
            ("quotactl", libc::SYS_quotactl),
            ("vhangup", libc::SYS_vhangup),
            ("syslog", libc::SYS_syslog),
            ("fanotify_init", libc::SYS_fanotify_init),
            ("pidfd_getfd", libc::SYS_pidfd_getfd),
            ("io_setup", libc::SYS_io_setup),
        ];
        for (name, number) in dangerous {
            assert_eq!(outcome(number, &[]), Err(libc::EPERM), "{name}");
        }
    }

    #[test]
    fn a_call_is_either_free_or_conditional() {
        let conditional = conditional(Action::Notify).into_iter();
        for number in conditional.map(|(number, _)| number).chain(PRETENDED) {
            assert!(!calls::ALLOWED.contains(&number), "{number} is both");
        }
    }

    #[test]
    fn arguments_decide_where_a_call_has_a_dangerous_form() {
        let refused = Err(libc::EPERM);
        let new_user_namespace = u64::from(libc::CLONE_NEWUSER.cast_unsigned()) | 0x11;
        assert_eq!(outcome(libc::SYS_clone, &[17]), Ok(()));
        assert_eq!(outcome(libc::SYS_clone, &[new_user_namespace]), refused);
        assert_eq!(outcome(libc::SYS_ptrace, &[0]), Ok(()));
        assert_eq!(outcome(libc::SYS_ptrace, &[4, 7, 0, 0xff]), Ok(()));
        for request in PTRACE_WITH_OPTIONS.map(u64::from) {
            assert_eq!(outcome(libc::SYS_ptrace, &[request, 7, 0, 0x3f]), Ok(()));
            assert_eq!(outcome(libc::SYS_ptrace, &[request, 7, 0, 0x7f]), refused);
        }
        assert_eq!(outcome(libc::SYS_prlimit64, &[0]), Ok(()));
        assert_eq!(outcome(libc::SYS_prlimit64, &[1]), refused);
        assert_eq!(outcome(libc::SYS_sched_setaffinity, &[1]), refused);
        assert_eq!(outcome(libc::SYS_setpriority, &[0, 1]), refused);
        assert_eq!(outcome(libc::SYS_setpriority, &[2, 1000]), refused);
        assert_eq!(outcome(libc::SYS_setpriority, &[0, 0]), Ok(()));
        assert_eq!(outcome(libc::SYS_personality, &[0xffff_ffff]), Ok(()));
        assert_eq!(outcome(libc::SYS_personality, &[0x0040_0000]), refused);
        assert_eq!(outcome(libc::SYS_mknodat, &[0, 0, 0o010_644]), Ok(()));
        assert_eq!(outcome(libc::SYS_mknodat, &[0, 0, 0o020_644]), refused);
        assert_eq!(outcome(libc::SYS_mknodat, &[0, 0, 0o060_644]), refused);
    }

    #[test]
    fn only_sockets_that_load_nothing_can_be_made() {
        const FLAGS: u64 = 0o2_004_000;
        let made = |family, kind, protocol| {
            let plain = outcome(libc::SYS_socket, &[family, kind, protocol]);
            let flagged = outcome(libc::SYS_socket, &[family, kind | FLAGS, protocol]);
            assert_eq!(plain, flagged, "{family} {kind} {protocol}");
            plain
        };
        for (family, icmp) in [(2, 1), (10, 58)] {
            for (kind, protocol) in [(1, 0), (1, 6), (2, 0), (2, 17), (2, icmp)] {
                assert_eq!(
                    made(family, kind, protocol),
                    Ok(()),
                    "{family} {kind} {protocol}"
                );
            }
            let strange = [
                (1, 17),
                (2, 6),
                (1, icmp),
                (2, 59 - icmp),
                (1, 132),
                (1, 33),
                (1, 262),
                (2, 136),
            ];
            // Raw, reliable datagram, seqpacket, DCCP and packet sockets.
            let types = [0, 3, 4, 5, 6, 10].map(|kind| (kind, 0));
            for (kind, protocol) in strange.into_iter().chain(types) {
                let outcome = made(family, kind, protocol);
                assert_eq!(outcome, Err(libc::EPERM), "{family} {kind} {protocol}");
            }
        }
        assert_eq!(made(1, 2, 0), Ok(()));
        for (family, protocol) in [
            (17, 0),
            (38, 0),
            (40, 0),
            (21, 0),
            (31, 0),
            (16, 15),
            (16, 21),
        ] {
            assert_eq!(
                made(family, 3, protocol),
                Err(libc::EPERM),
                "{family} {protocol}"
            );
        }
    }

    #[test]
    fn syncing_the_host_only_seems_to_happen() {
        assert_eq!(outcome(libc::SYS_sync, &[]), Err(0));
        assert_eq!(outcome(libc::SYS_syncfs, &[3]), Err(0));
        assert_eq!(outcome(libc::SYS_fsync, &[3]), Ok(()));
    }

    #[test]
    fn the_limit_on_core_files_can_be_read_and_only_seemingly_set() {
        const CORE: u64 = RLIMIT_CORE as u64;
        const POINTERS: [u64; 3] = [1, 0x7ffe_0000_0000, 0x7ffe_dead_beef];
        let (pretended, refused) = (Err(0), Err(libc::EPERM));
        let prlimit = |arguments: &[u64]| outcome(libc::SYS_prlimit64, arguments);
        for pointer in POINTERS {
            assert_eq!(outcome(libc::SYS_setrlimit, &[CORE, pointer]), pretended);
            // The kernel reads 32 bits of the resource, so the filter must too.
            let padded = CORE | 1 << 40;
            assert_eq!(outcome(libc::SYS_setrlimit, &[padded, pointer]), pretended);
            assert_eq!(prlimit(&[0, CORE, pointer, 0]), pretended);
            assert_eq!(prlimit(&[1 << 32, padded, pointer, 0]), pretended);
            assert_eq!(prlimit(&[0, CORE, 0, pointer]), Ok(()));
            assert_eq!(prlimit(&[0, CORE, pointer, pointer]), refused);
            assert_eq!(prlimit(&[1, CORE, pointer, 0]), refused);
            for other in [0, 3, 5, 7, 15] {
                assert_eq!(outcome(libc::SYS_setrlimit, &[other, pointer]), Ok(()));
                assert_eq!(prlimit(&[0, other, pointer, pointer]), Ok(()));
                assert_eq!(prlimit(&[1, other, pointer, pointer]), refused);
            }
        }
    }

    #[test]
    fn sockets_for_routes_are_asked_about_or_refused() {
        let filters = SeccompFilters::compile();
        let socket = call(libc::SYS_socket);
        let action = |program, kind| program::tests::simulate(program, socket, &[16, kind, 0]);
        for kind in [2, 3, 3 | 0o2_000_000] {
            let asked = action(&filters.asking, kind);
            assert_eq!(asked, libc::SECCOMP_RET_USER_NOTIF, "{kind}");
            let refused = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.cast_unsigned();
            assert_eq!(action(&filters.refusing, kind), refused, "{kind}");
        }
    }

    #[test]
    fn nobody_inside_answers_for_the_filter() {
        assert_eq!(outcome(libc::SYS_seccomp, &[1, 0]), Ok(()));
        for flags in [8, 8 | 0x20, u64::MAX] {
            assert_eq!(outcome(libc::SYS_seccomp, &[1, flags]), Err(libc::EPERM));
        }
    }

    #[test]
    fn what_is_too_new_does_not_exist() {
        assert_eq!(outcome(libc::SYS_clone3, &[]), Err(libc::ENOSYS));
        assert_eq!(outcome(500, &[]), Err(libc::ENOSYS));
        assert_eq!(outcome(452, &[]), Ok(()));
        assert_eq!(outcome(0x4000_0000, &[]), Err(libc::EPERM));
    }

    #[test]
    fn the_program_fits_into_what_the_kernel_takes() {
        assert!(SeccompFilters::compile().asking.len() < 4096);
    }

    /// `Err(0)` means that the call is not made and returns 0.
    pub(crate) fn outcome(number: i64, arguments: &[u64]) -> Result<(), i32> {
        let program = SeccompFilters::compile().asking;
        let action = program::tests::simulate(&program, call(number), arguments);
        match action & !libc::SECCOMP_RET_DATA {
            libc::SECCOMP_RET_ALLOW => Ok(()),
            _ => Err((action & libc::SECCOMP_RET_DATA).cast_signed()),
        }
    }
}
