//! Linux namespaces, cgroups, seccomp and the launcher that combines them.
//!
//! Synchronous, and independent of our other crates: it starts a given program as PID 1 of a sealed
//! container and does not know what that program does.
//!
//! All unsafe code is in `sys.rs`. Needs Linux 5.14 or later.

#![deny(unsafe_code)]

pub mod cgroup;
mod child;
pub mod disk_quota;
pub mod ids;
pub mod launcher;
mod mapped_mount;
pub mod open_files;
mod plan;
pub mod probe;
mod process;
mod remove_as;
mod seccomp;
mod size;
mod spec;
mod start;
#[expect(unsafe_code, reason = "the one file for it")]
mod sys;

pub use launcher::{
    FDS_MAX, LAUNCHER_ARGV0, LaunchError, Launched, Launcher, is_launcher, run_launcher,
};
pub use plan::{
    CORE_BYTES_MAX, LOCKED_BYTES_MAX, MESSAGE_QUEUE_BYTES_MAX, PENDING_SIGNALS_MAX, PROC_MASKED,
};
pub use process::{alive, kill, open_pidfd, start_time, wait_exit};
pub use remove_as::remove_tree_as;
pub use seccomp::filter;
pub use size::HostSize;
pub use spec::{
    DiskIds, Enforced, Enforcement, FIRST_FD, IdMap, LaunchSpec, Limits, NOTIFY_FD, Root, Scratch,
    USER_ID,
};
pub use sys::make_subvolume_writable;
