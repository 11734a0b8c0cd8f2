//! Opening directories, also those whose owner has closed them to itself.
//!
//! A directory without permissions hides what is in it from everybody but root. If it is ours, it
//! is opened for the time that we are in it: by its inode, never by a name, which could be
//! replaced by a link to something else.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Dir, Mode, OFlags, chmodat, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// What reading and entering a directory takes.
const NEEDED: Mode = Mode::RUSR.union(Mode::XUSR);

/// An open directory.
pub(crate) struct Opened {
    pub(crate) directory: Dir,
    /// Closes it again.
    _reclosed: Option<Reclose>,
}

/// Gives a directory its mode back when it is dropped.
struct Reclose {
    inode: OwnedFd,
    mode: Mode,
}

impl Opened {
    /// One that needs no help.
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

/// Opens a directory in another. A symlink is not followed.
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

/// A descriptor of the kind that `inode` is cannot be given to fchmod.
fn change_mode(inode: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", inode.as_raw_fd());
    chmodat(CWD, path, mode, rustix::fs::AtFlags::empty())
}
