//! Temporary files: they have an unguessable name and are removed unless they are published.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::beneath::{Location, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::path::{Name, RelPath};
use super::tree;

/// An unfinished file in a directory; dropping it removes it.
#[derive(Debug)]
pub(super) struct Temp {
    location: Location,
    published: bool,
    kind: TempKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TempKind {
    File,
    Directory,
    HardLink,
}

impl Temp {
    /// An empty file with mode 0600, open for reading and writing.
    pub(super) fn file(dir: &Arc<OwnedFd>) -> Result<(Self, OwnedFd), Error> {
        let location = unused_location(dir)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(dir, location.name.as_bytes(), flags, mode)
            .step("make a temporary file")?;
        Ok((Self::new(location, TempKind::File), fd))
    }

    /// An empty directory, open for reading.
    pub(super) fn directory(dir: &Arc<OwnedFd>) -> Result<(Self, OwnedFd), Error> {
        let location = unused_location(dir)?;
        let fd =
            make_directory(dir, location.name.as_bytes()).step("make a temporary directory")?;
        Ok((Self::new(location, TempKind::Directory), fd))
    }

    pub(super) fn symlink(dir: &Arc<OwnedFd>, target: &[u8]) -> Result<Self, Error> {
        let location = unused_location(dir)?;
        rustix::fs::symlinkat(target, dir, location.name.as_bytes()).step("make a symlink")?;
        Ok(Self::new(location, TempKind::File))
    }

    /// A hard link to a file, or to a symlink itself.
    pub(super) fn link(dir: &Arc<OwnedFd>, source: &Location) -> Result<Self, Error> {
        let location = unused_location(dir)?;
        let (from, to) = (source.name.as_bytes(), location.name.as_bytes());
        rustix::fs::linkat(&source.dir, from, dir, to, AtFlags::empty())
            .map_err(Error::of_rename("make a hard link"))?;
        Ok(Self::new(location, TempKind::HardLink))
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Renames it into place, atomically. With `replace`, it may replace a file.
    pub(super) fn publish(mut self, to: &Location, replace: bool) -> Result<(), Error> {
        if replace {
            rename(&self.location, to).map_err(Error::of_rename("put the file in place"))?;
            // Renaming one hard link of a file over another does nothing, so the temporary name may
            // still exist for the drop below to remove.
            self.published = self.kind != TempKind::HardLink;
        } else {
            let moved = rename_to_free(&self.location, to);
            moved.map_err(Error::of_rename("put the file in place"))?;
            self.published = true;
        }
        Ok(())
    }

    /// Hands it over to a journal that has moved it.
    pub(super) fn forget(mut self) {
        self.published = true;
    }

    fn new(location: Location, kind: TempKind) -> Self {
        Self {
            location,
            published: false,
            kind,
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        // Errors are ignored: nobody is left to report them to. Only a directory is removed
        // recursively: the container may have replaced a file by an endless tree, and this may run
        // on the thread that serves everyone.
        if self.kind == TempKind::Directory {
            let _ = tree::remove(&self.location, &Stop::cleanup());
        } else {
            let _ = tree::unlink(&self.location.dir, self.location.name.as_bytes());
        }
    }
}

/// Moves a file over any existing file at `to`.
pub(super) fn rename(from: &Location, to: &Location) -> rustix::io::Result<()> {
    rustix::fs::renameat(&from.dir, from.name.as_bytes(), &to.dir, to.name.as_bytes())
}

/// Moves a file to an unused name.
pub(super) fn rename_to_free(from: &Location, to: &Location) -> rustix::io::Result<()> {
    let moved = rename_with(from, to, RenameFlags::NOREPLACE);
    // Some filesystems lack the flag; then check before the move.
    if !matches!(moved, Err(Errno::INVAL | Errno::NOSYS)) {
        return moved;
    }
    match rustix::fs::statat(&to.dir, to.name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rename(from, to),
        Err(errno) => Err(errno),
    }
}

/// Exchanges two files.
pub(super) fn exchange(one: &Location, other: &Location) -> rustix::io::Result<()> {
    let exchanged = rename_with(one, other, RenameFlags::EXCHANGE);
    // Some kernels (gVisor) and filesystems lack the flag; then use three renames, undone if one
    // fails.
    if !matches!(exchanged, Err(Errno::INVAL | Errno::NOSYS)) {
        return exchanged;
    }
    let aside = unused_location(&one.dir).map_err(|_| Errno::IO)?;
    rename_to_free(one, &aside)?;
    let result = rename_to_free(other, one).and_then(|()| {
        let result = rename_to_free(&aside, other);
        if result.is_err() {
            let _ = rename_to_free(one, other);
        }
        result
    });
    if result.is_err() {
        let _ = rename_to_free(&aside, one);
    }
    result
}

/// Creates a directory with mode 0700 and opens it.
pub(super) fn make_directory(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mkdirat(&dir, name, Mode::RWXU)?;
    open_child(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// A name that nobody in the container can guess.
pub(super) fn unused_location(dir: &Arc<OwnedFd>) -> Result<Location, Error> {
    let mut random = [0_u8; 16];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).step("get random bytes")?;
    let name = format!(".hotcell-{:032x}", u128::from_ne_bytes(random));
    let path = RelPath::default().child(name.as_bytes());
    Ok(Location {
        dir: Arc::clone(dir),
        name: Name::own(name),
        path,
    })
}

fn rename_with(from: &Location, to: &Location, flags: RenameFlags) -> rustix::io::Result<()> {
    let (old, new) = (from.name.as_bytes(), to.name.as_bytes());
    rustix::fs::renameat_with(&from.dir, old, &to.dir, new, flags)
}
