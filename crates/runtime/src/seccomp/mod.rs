//! Which system calls a container may make.
//!
//! An allow-list: what ordinary development needs and nothing else. Everything not
//! named here is refused with `EPERM`; calls too new to be judged, and `clone3`, whose
//! flags a filter cannot see, with `ENOSYS`, so that libraries fall back to older ones.

mod calls;

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// The newest call that this profile has an opinion about is below this number.
const FIRST_UNKNOWN: i64 = 450;
/// Calls up to this number are told that they do not exist rather than forbidden.
const LAST_UNKNOWN: i64 = 511;

/// Namespaces that `clone` could make.
const NAMESPACES: u64 = 0x7e02_0000;

const PRIO_PROCESS: u64 = 0;
const PRIO_PGRP: u64 = 1;
const IOPRIO_WHO_PROCESS: u64 = 1;
const IOPRIO_WHO_PGRP: u64 = 2;

/// The personalities that change nothing but what `uname` says of 32 bits and addresses'
/// randomness, and the value that only asks.
const PERSONALITIES: [u64; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Sockets that stay in the container's own network namespace.
const SOCKET_FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// The filters of every container, in the order in which to install them.
pub struct Profile {
    /// Compiled programs.
    pub programs: [BpfProgram; 2],
}

impl Profile {
    /// Compiles the profile for this machine.
    pub fn compile() -> Result<Self, BackendError> {
        Ok(Self {
            programs: [missing()?, allowed()?],
        })
    }
}

/// Says `ENOSYS` to what libraries know how to do without.
fn missing() -> Result<BpfProgram, BackendError> {
    let known: BTreeSet<i64> = calls::ALLOWED.iter().copied().collect();
    let mut rules: Rules = (FIRST_UNKNOWN..=LAST_UNKNOWN)
        .filter(|number| !known.contains(number))
        .map(|number| (number, Vec::new()))
        .collect();
    rules.insert(libc::SYS_clone3, Vec::new());
    let answer = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, ARCH)?.try_into()
}

/// Says `EPERM` to everything that is not allowed.
fn allowed() -> Result<BpfProgram, BackendError> {
    let mut rules: Rules = calls::ALLOWED
        .iter()
        .map(|number| (*number, Vec::new()))
        .collect();
    // The other filter answers for these; the first refusal of two equal ones would win.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.extend((FIRST_UNKNOWN..=LAST_UNKNOWN).map(|number| (number, Vec::new())));
    rules.extend(conditional()?);
    let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, refusal, SeccompAction::Allow, ARCH)?.try_into()
}

/// Calls that are allowed with certain arguments only.
fn conditional() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    rules.insert(libc::SYS_clone, vec![all([(0, MaskedEq(NAMESPACES), 0)])?]);
    let families = SOCKET_FAMILIES.map(|family| u64::from(family.cast_unsigned()));
    rules.insert(libc::SYS_socket, any_of(0, &families)?);
    rules.insert(libc::SYS_socketpair, any_of(0, &families)?);
    rules.insert(libc::SYS_personality, any_of(0, &PERSONALITIES)?);
    rules.insert(
        libc::SYS_ioctl,
        vec![all([(1, Ne, libc::TIOCSTI), (1, Ne, libc::TIOCLINUX)])?],
    );
    rules.insert(libc::SYS_prlimit64, vec![all([(0, Eq, 0)])?]);
    rules.extend(scheduling()?);
    rules.extend(nodes()?);
    Ok(rules)
}

/// Nobody changes how init is scheduled, and nobody all processes of a user, of which init
/// is one.
fn scheduling() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        rules.insert(call, vec![all([(0, Ne, 1)])?]);
    }
    let other_than_init = |process, group| {
        Ok(vec![
            all([(0, Eq, process), (1, Ne, 1)])?,
            all([(0, Eq, group), (1, Ne, 1)])?,
        ])
    };
    rules.insert(
        libc::SYS_setpriority,
        other_than_init(PRIO_PROCESS, PRIO_PGRP)?,
    );
    rules.insert(
        libc::SYS_ioprio_set,
        other_than_init(IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP)?,
    );
    Ok(rules)
}

/// Files, pipes and sockets can be made, devices cannot.
fn nodes() -> Result<Rules, BackendError> {
    let kinds = [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK].map(u64::from);
    let of_kind = |argument: u8| -> Result<Vec<SeccompRule>, BackendError> {
        let mask = u64::from(libc::S_IFMT);
        kinds
            .into_iter()
            .map(|kind| all([(argument, MaskedEq(mask), kind)]))
            .collect()
    };
    let mut rules = Rules::new();
    rules.insert(libc::SYS_mknodat, of_kind(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, of_kind(1)?);
    Ok(rules)
}

/// One rule for each value that the argument may have.
fn any_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .iter()
        .map(|value| all([(argument, Eq, *value)]))
        .collect()
}

/// A rule that holds when all its conditions do. The kernel reads every one of these
/// arguments as 32 bits, so only those are compared.
fn all<const N: usize>(
    conditions: [(u8, SeccompCmpOp, u64); N],
) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .into_iter()
        .map(|(argument, operator, value)| SeccompCondition::new(argument, Dword, operator, value))
        .collect::<Result<Vec<_>, _>>()?;
    SeccompRule::new(conditions)
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
        ];
        let conditional = conditional().unwrap();
        for (name, number) in dangerous {
            assert!(!calls::ALLOWED.contains(&number), "{name} is allowed");
            assert!(
                !conditional.contains_key(&number),
                "{name} is allowed in part"
            );
        }
    }

    #[test]
    fn a_call_is_either_free_or_conditional() {
        for number in conditional().unwrap().keys() {
            assert!(!calls::ALLOWED.contains(number), "{number} is both");
        }
    }

    #[test]
    fn both_programs_fit_into_what_the_kernel_takes() {
        for program in Profile::compile().unwrap().programs {
            assert!(program.len() < 4096);
        }
    }
}
