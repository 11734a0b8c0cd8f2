//! Typical file operations, for testing a filesystem with mapped ids.

use std::ffi::CStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Creates, removes, creates again and renames files in a directory. May be called between clone
/// and exec.
pub(crate) fn use_in(directory: &CStr) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o755);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let at = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
    let make = |name: &CStr| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&at, name, flags, mode).map(drop)
    };
    rustix::fs::mkdirat(&at, c"d", mode)?;
    make(c"d/x")?;
    rustix::fs::unlinkat(&at, c"d/x", AtFlags::empty())?;
    rustix::fs::unlinkat(&at, c"d", AtFlags::REMOVEDIR)?;
    rustix::fs::mkdirat(&at, c"d", mode)?;
    make(c"file")?;
    Ok(rustix::fs::renameat(&at, c"file", &at, c"d/moved")?)
}

/// Checks that the files that [`use_in`] left in a directory belong to a user.
pub(super) fn has_owner(directory: &Path, id: u32) -> io::Result<()> {
    for name in ["d", "d/moved"] {
        let found = std::fs::symlink_metadata(directory.join(name))?;
        if (found.uid(), found.gid()) != (id, id) {
            let (uid, gid) = (found.uid(), found.gid());
            let found = format!("a file of {id} belongs to {uid}:{gid} on disk");
            return Err(io::Error::other(found));
        }
    }
    Ok(())
}
