//! Which mount a directory is on, and a root that follows its mount.
//!
//! The host may replace the mount at the root while we run, for example to restore a checkpoint.
//! Our descriptor then still refers to the old one. So each operation checks whether the path still
//! leads to the directory that we hold, which costs one system call. A notification by the server
//! instead would leave a moment in which changes go to the wrong tree. An operation that has begun
//! finishes on the old mount. Our descriptor keeps the old mount busy until the next operation, so
//! the host must unmount it lazily.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};

use super::beneath::Beneath;

/// Identifies a directory on a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    /// 0 if the kernel does not report it (before Linux 5.8); then only the device is compared.
    mount: u64,
    device: (u32, u32),
    inode: u64,
}

impl From<Statx> for Identity {
    fn from(stat: Statx) -> Self {
        let tells_mount = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        Self {
            mount: if tells_mount { stat.stx_mnt_id } else { 0 },
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
        }
    }
}

fn identity(directory: impl AsFd) -> rustix::io::Result<Identity> {
    let flags = StatxFlags::INO | StatxFlags::MNT_ID;
    rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, flags).map(Identity::from)
}

/// Whether a rename between the directories stays on one mount.
pub(super) fn is_same_mount(one: impl AsFd, other: impl AsFd) -> bool {
    match (identity(one), identity(other)) {
        (Ok(one), Ok(other)) => (one.mount, one.device) == (other.mount, other.device),
        _ => false,
    }
}

/// The root as it is mounted now.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    beneath: Beneath,
    /// `None` if the kernel does not report it.
    identity: Option<Identity>,
}

impl Current {
    fn open(path: &Path) -> io::Result<Self> {
        let beneath = Beneath::open(path)?;
        let identity = identity(beneath.fd()).ok();
        Ok(Self { beneath, identity })
    }
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            current: Mutex::new(Current::open(path)?),
        })
    }

    /// The directory at the path, and whether it differs from the last one. Returns the last one
    /// while the path cannot be opened.
    pub(super) fn now(&self) -> (Beneath, bool) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = StatxFlags::INO | StatxFlags::MNT_ID;
        let now = rustix::fs::statx(CWD, &self.path, AtFlags::empty(), flags);
        let now = now.ok().map(Identity::from);
        let mut is_changed = false;
        if now.is_some()
            && now != current.identity
            && let Ok(opened) = Current::open(&self.path)
        {
            is_changed = opened.identity != current.identity;
            *current = opened;
        }
        (current.beneath.clone(), is_changed)
    }
}
