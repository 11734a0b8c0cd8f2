//! What the agent gives up before it serves, where the engine has not seen to it.
//!
//! From root to the container's user, for engines that cannot pass capabilities to an
//! ordinary user: keeps what it takes to run execs as another user, and nothing else. And a
//! filter of system calls of our own, for engines whose own lets through too much.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::sys;

/// Bytes of one instruction.
const INSTRUCTION_BYTES: usize = 8;

/// Instructions that the kernel takes.
const INSTRUCTIONS_MAX: usize = 4096;

/// What running execs as another user and ending them takes.
const KEPT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Becomes the user, with empty bounding and inheritable sets. Only while there is no
/// other thread: each thread has credentials of its own.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // The kernel is older than that capability.
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

/// Loads a seccomp program, for this process and everything it starts. Only while there is
/// no other thread.
pub fn load_filter(path: &Path) -> io::Result<()> {
    let program = std::fs::read(path)?;
    let is_whole = program.len() % INSTRUCTION_BYTES == 0;
    if program.is_empty() || !is_whole || program.len() > INSTRUCTIONS_MAX * INSTRUCTION_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    set_no_new_privs(true)?;
    Ok(sys::load_filter(&program)?)
}
