//! Mounts whose files belong to a container's ids, although on disk they belong to others.
//!
//! Layers are unpacked once, with the ids that the image gives its files, and shared by
//! containers that each have host ids of their own.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::CWD;
use rustix::mount::OpenTreeFlags;

use crate::plan::LAYER_ATTRIBUTES;
use crate::sys;

/// A read-only copy of the mount at `path` for the user namespace of process `pid`. Needs host
/// root, Linux 5.12, and a filesystem that can.
pub(crate) fn open(path: &CStr, pid: u32) -> io::Result<OwnedFd> {
    let namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(CWD, path, flags)?;
    sys::mount_idmap(tree.as_fd(), LAYER_ATTRIBUTES, namespace.as_fd())?;
    Ok(tree)
}
