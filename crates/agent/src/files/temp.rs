//! Things under construction: they have a name nobody can guess, and are gone
//! again unless they are published.

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

/// Something unfinished in a directory; dropping it removes it.
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
    /// An empty file, open for writing and reading back, and readable by its owner only.
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

    /// A symlink.
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

    /// Where it is being made.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Gives it its name, atomically. With `replace`, a file that is there is gone.
    pub(super) fn publish(mut self, to: &Location, replace: bool) -> Result<(), Error> {
        if replace {
            rename(&self.location, to).map_err(Error::of_rename("put the file in place"))?;
            // Renaming one hard link of a file over another does nothing at all, so
            // a hard link may still be there for the drop below to remove.
            self.published = self.kind != TempKind::HardLink;
        } else {
            let moved = rename_to_free(&self.location, to);
            moved.map_err(Error::of_rename("put the file in place"))?;
            self.published = true;
        }
        Ok(())
    }

    /// Leaves it to a journal, which has moved it.
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
        // There is nobody left to tell; what cannot be removed stays. Only what was a
        // directory is removed as one: in place of a file, which may be dropped on the
        // thread that serves everybody, the container may have put a tree without end.
        if self.kind == TempKind::Directory {
            let _ = tree::remove(&self.location, &Stop::cleanup());
        } else {
            let _ = tree::unlink(&self.location.dir, self.location.name.as_bytes());
        }
    }
}

/// Moves something over whatever file is at `to`.
pub(super) fn rename(from: &Location, to: &Location) -> rustix::io::Result<()> {
    rustix::fs::renameat(&from.dir, from.name.as_bytes(), &to.dir, to.name.as_bytes())
}

/// Moves something to a name that must be free.
pub(super) fn rename_to_free(from: &Location, to: &Location) -> rustix::io::Result<()> {
    let moved = rename_with(from, to, RenameFlags::NOREPLACE);
    // Not every filesystem knows the flag. A look before the move is the next best.
    if !matches!(moved, Err(Errno::INVAL | Errno::NOSYS)) {
        return moved;
    }
    match rustix::fs::statat(&to.dir, to.name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rename(from, to),
        Err(errno) => Err(errno),
    }
}

/// Lets two things change places.
pub(super) fn exchange(one: &Location, other: &Location) -> rustix::io::Result<()> {
    let exchanged = rename_with(one, other, RenameFlags::EXCHANGE);
    // Not every kernel and filesystem knows the flag: gVisor's do not. Three moves are the
    // next best; what fails in between is taken back.
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

/// Makes a directory that only we may enter, and opens it.
pub(super) fn make_directory(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mkdirat(&dir, name, Mode::RWXU)?;
    open_child(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// A name that nobody inside the container can guess.
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
