//! Id-mapped mounts: files appear with a container's ids although they have other owners on disk.
//!
//! Image layers are unpacked once, with the ids that the image gives its files, and shared by
//! containers that each have their own host ids. A workspace can have plain ids on disk. An overlay
//! cannot be id-mapped, so its layers are mapped before it is mounted.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::CWD;
use rustix::mount::OpenTreeFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::plan::MappedMount;
use crate::spec::{DiskIds, IdMap, USER_ID};
use crate::start;
use crate::sys;

/// Clones the mount with its own id map and attributes, for a container with these ids whose first
/// process is `pid`. Needs host root, Linux 5.12, and a filesystem that supports it.
pub(crate) fn open(mount: &MappedMount, ids: &IdMap, pid: u32) -> io::Result<OwnedFd> {
    // For plain ids, the container's own user namespace already has the right map.
    let namespace = if mount.disk_ids == DiskIds::PLAIN && matches!(ids, IdMap::Range { .. }) {
        File::open(format!("/proc/{pid}/ns/user"))?
    } else {
        user_namespace(mount.disk_ids, ids)?
    };
    clone_mapped(&mount.path, mount.attributes, &namespace)
}

fn clone_mapped(path: &CStr, attributes: u64, namespace: &File) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(CWD, path, flags)?;
    sys::mount_idmap(tree.as_fd(), attributes, namespace.as_fd())?;
    Ok(tree)
}

/// A user namespace that maps ids on disk to the container's host ids. The kernel reads a mount's
/// map from a user namespace; no process stays in this one.
fn user_namespace(disk_ids: DiskIds, ids: &IdMap) -> io::Result<File> {
    let line = |host: Option<u32>, last: Option<u32>| {
        let (host, _) = host.zip(last).ok_or(io::ErrorKind::InvalidInput)?;
        Ok::<_, io::Error>(format!("{} {host} {}", disk_ids.on_disk, disk_ids.count))
    };
    let last = disk_ids.inner.checked_add(disk_ids.count.saturating_sub(1));
    let last = last.ok_or(io::ErrorKind::InvalidInput)?;
    // One line can only map ids that are also consecutive outside.
    let has_gap = matches!(ids, IdMap::Range { user: Some(_), .. })
        && disk_ids.count > 1
        && (disk_ids.inner..=last).contains(&USER_ID);
    if has_gap {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let uids = line(ids.host_uid(disk_ids.inner), ids.host_uid(last))?;
    let gids = line(ids.host_gid(disk_ids.inner), ids.host_gid(last))?;
    let (wait, end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (pid, pidfd) = sys::clone3(libc::CLONE_NEWUSER, None, |child| {
        // Otherwise the child would not notice that the parent has died.
        sys::close_copy(child, end.as_fd());
        i32::from(rustix::io::read(&wait, &mut [0_u8; 1]).is_err())
    })?;
    let mapped = fs::write(format!("/proc/{pid}/gid_map"), gids)
        .and_then(|()| fs::write(format!("/proc/{pid}/uid_map"), uids))
        .and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
    start::end(&pidfd);
    mapped
}
