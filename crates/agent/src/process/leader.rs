//! From a new child of the keeper to the requested program.
//!
//! Runs in the keeper's memory while the keeper is suspended: only system calls, no allocation, no
//! locks. The program gets its three descriptors, environment, directory and user, and inherits
//! nothing else from the agent: no capability, no ignored or blocked signal, no open file.

use std::cell::Cell;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, chdir, ioctl_tiocsctty, setrlimit, setsid, umask};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_thread_gid,
    set_thread_groups, set_thread_uid,
};

use super::keeper::Launch;
use super::record::LaunchStep;
use crate::sys::{self, InChild};

/// How a leader tells its keeper why it could not start.
pub(super) type Failure = Cell<Option<(LaunchStep, Errno)>>;

/// Executes the program; returns only on failure.
pub(super) fn become_program(child: &InChild, launch: &Launch, failure: &Failure) -> i32 {
    let error = prepare(child, launch)
        .err()
        .unwrap_or_else(|| (LaunchStep::Execve, execute(launch)));
    failure.set(Some(error));
    127
}

fn prepare(child: &InChild, launch: &Launch) -> Result<(), (LaunchStep, Errno)> {
    setsid().map_err(|errno| (LaunchStep::Setsid, errno))?;
    if launch.stdio.tty {
        ioctl_tiocsctty(&launch.stdio.stdout).map_err(|errno| (LaunchStep::Terminal, errno))?;
    }
    take_stdio(launch).map_err(|errno| (LaunchStep::Dup2, errno))?;
    umask(Mode::WGRP | Mode::WOTH);
    chdir(launch.cwd.as_c_str()).map_err(|errno| (LaunchStep::Chdir, errno))?;
    limit_memory(launch.data_bytes_max).map_err(|errno| (LaunchStep::Setrlimit, errno))?;
    become_user(launch)?;
    drop_capabilities().map_err(|errno| (LaunchStep::Capset, errno))?;
    sys::reset_signals(child);
    Ok(())
}

fn limit_memory(data_bytes_max: Option<u64>) -> Result<(), Errno> {
    if data_bytes_max.is_none() {
        return Ok(());
    }
    let limit = Rlimit {
        current: data_bytes_max,
        maximum: data_bytes_max,
    };
    setrlimit(Resource::Data, limit)
}

fn take_stdio(launch: &Launch) -> Result<(), Errno> {
    dup2_stdin(&launch.stdio.stdin)?;
    dup2_stdout(&launch.stdio.stdout)?;
    dup2_stderr(&launch.stdio.stderr)
}

fn become_user(launch: &Launch) -> Result<(), (LaunchStep, Errno)> {
    let Some(user) = launch.user else {
        return Ok(());
    };
    set_thread_groups(&[]).map_err(|errno| (LaunchStep::Setgroups, errno))?;
    set_thread_gid(user.gid).map_err(|errno| (LaunchStep::Setgid, errno))?;
    set_thread_uid(user.uid).map_err(|errno| (LaunchStep::Setuid, errno))
}

/// Drops every capability, permanently as far as the bounding set allows.
pub(super) fn drop_capabilities() -> Result<(), Errno> {
    match clear_ambient_capability_set() {
        // EINVAL: gVisor has no ambient set.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno),
    }
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}

/// Tries each candidate like a shell: continues if there is no such program, and finally returns
/// the most informative error.
fn execute(launch: &Launch) -> Errno {
    let mut reason = Errno::NOENT;
    for candidate in &launch.candidates {
        match sys::execve(candidate, &launch.argv, &launch.env) {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => {}
            Errno::ACCESS => reason = Errno::ACCESS,
            other => return other,
        }
    }
    reason
}
