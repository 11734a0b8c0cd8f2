//! Drops privileges before serving, for engines that do not do it themselves.
//!
//! Engines that cannot give capabilities to an ordinary user start the agent as root: it becomes
//! the container's user and keeps only the capabilities to run execs as other users. Engines whose
//! own seccomp profile allows too much have the agent load our filter.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use libc::sock_filter;
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::sys;

/// The BPF instruction that returns a verdict.
const BPF_RETURN: u16 = 0x06;

const INSTRUCTION_BYTES: usize = 8;

/// The kernel's limit on the length of a program.
const INSTRUCTIONS_MAX: usize = 4096;

/// The capabilities to run execs as another user and to kill them.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Switches to the user, with empty bounding and inheritable sets. Call this only while there is
/// one thread: credentials are per thread.
pub(crate) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // EINVAL: the kernel is too old to know this capability.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)?;
    let sets = CapabilitySets {
        effective: KEPT,
        permitted: KEPT,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Loads a seccomp program for this process and its descendants, and returns its listener. Call
/// this only while there is one thread.
///
/// Where no listener is possible, nobody could answer its notifications. Those calls are then
/// refused, or allowed if the kernel serves only this container.
pub(crate) fn load_filter(path: &Path, has_own_kernel: bool) -> io::Result<Option<OwnedFd>> {
    let program = std::fs::read(path)?;
    let is_complete = program.len() % INSTRUCTION_BYTES == 0;
    if program.is_empty() || !is_complete || program.len() > INSTRUCTIONS_MAX * INSTRUCTION_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut program = instructions(&program);
    set_no_new_privs(true)?;
    if let Ok(listener) = sys::load_filter_with_listener(&program) {
        return Ok(Some(listener));
    }
    decide_instead(&mut program, has_own_kernel);
    sys::load_filter(&program)?;
    Ok(None)
}

fn instructions(program: &[u8]) -> Vec<sock_filter> {
    let instruction = |bytes: &[u8]| sock_filter {
        code: u16::from_ne_bytes([bytes[0], bytes[1]]),
        jt: bytes[2],
        jf: bytes[3],
        k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    let instructions = program.chunks_exact(INSTRUCTION_BYTES);
    instructions.map(instruction).collect()
}

/// Replaces each notification by a fixed verdict.
fn decide_instead(program: &mut [sock_filter], allow: bool) {
    let verdict = if allow {
        libc::SECCOMP_RET_ALLOW
    } else {
        libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.cast_unsigned()
    };
    for instruction in program {
        if (instruction.code, instruction.k) == (BPF_RETURN, libc::SECCOMP_RET_USER_NOTIF) {
            instruction.k = verdict;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_listener_its_questions_are_decided_and_nothing_else_changes() {
        // A comparison with the same number is not a verdict and must stay.
        let program: Vec<(u16, u32)> = vec![
            (0x20, 0),
            (0x15, libc::SECCOMP_RET_USER_NOTIF),
            (BPF_RETURN, libc::SECCOMP_RET_USER_NOTIF),
            (BPF_RETURN, libc::SECCOMP_RET_ALLOW),
        ];
        let refused = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.cast_unsigned();
        for (allow, verdict) in [(false, refused), (true, libc::SECCOMP_RET_ALLOW)] {
            let bytes = program.iter().flat_map(|(code, k)| {
                [&code.to_ne_bytes()[..], &[0, 0], &k.to_ne_bytes()[..]].concat()
            });
            let mut changed = instructions(&bytes.collect::<Vec<_>>());
            decide_instead(&mut changed, allow);
            let changed: Vec<_> = changed.iter().map(|one| (one.code, one.k)).collect();
            let mut expected = program.clone();
            expected[2].1 = verdict;
            assert_eq!(changed, expected);
        }
    }
}
