//! Opens directories, even those whose owner has removed its own permissions.
//!
//! A directory without permissions hides its contents from everyone but root. If it is ours, it is
//! made accessible while we read it: by its inode, never by a name, which could be replaced by a
//! link.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Dir, Mode, OFlags, chmodat, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The permissions needed to read and enter a directory.
const NEEDED: Mode = Mode::RUSR.union(Mode::XUSR);

/// An open directory.
pub(crate) struct Opened {
    pub(crate) directory: Dir,
    /// Restores its mode when dropped.
    _reclosed: Option<Reclose>,
}

/// Restores the mode of a directory when it is dropped.
struct Reclose {
    inode: OwnedFd,
    mode: Mode,
}

impl Opened {
    /// A directory that is readable as it is.
    pub(crate) fn readable(directory: Dir) -> Self {
        Self {
            directory,
            _reclosed: None,
        }
    }
}

impl Drop for Reclose {
    fn drop(&mut self) {
        let _ = change_mode(&self.inode, self.mode);
    }
}

/// Opens a subdirectory. Does not follow symlinks.
pub(crate) fn open(at: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Opened> {
    let kind = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inode = openat(at, name, OFlags::PATH | kind, Mode::empty())?;
    let found = fstat(&inode)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    let (us, is_closed) = (geteuid(), !mode.contains(NEEDED));
    let reclosed = (is_closed && !us.is_root() && found.st_uid == us.as_raw())
        .then(|| reopen(inode.try_clone().map_err(|_| Errno::MFILE)?, mode))
        .transpose()?;
    let directory = openat(&inode, c".", OFlags::RDONLY | kind, Mode::empty())?;
    Ok(Opened {
        directory: Dir::new(directory)?,
        _reclosed: reclosed,
    })
}

fn reopen(inode: OwnedFd, mode: Mode) -> rustix::io::Result<Reclose> {
    change_mode(&inode, mode | NEEDED)?;
    Ok(Reclose { inode, mode })
}

/// Changes the mode by way of `/proc`, because fchmod does not accept an `O_PATH` descriptor.
fn change_mode(inode: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", inode.as_raw_fd());
    chmodat(CWD, path, mode, rustix::fs::AtFlags::empty())
}
