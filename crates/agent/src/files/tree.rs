//! Removes a tree of any depth and width, with bounded memory and descriptors.
//!
//! Each step handles one name in an open directory and follows no symlink. At most `LEVELS_MAX`
//! directories are open; a deeper directory is moved to the top of the tree that is being removed,
//! and removed from there. So no recursion is needed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Location, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::path::Name;
use super::temp::{rename, unused_location};

/// Open directories at a time.
const LEVELS_MAX: usize = 64;

/// How often a directory that is still not empty is read again: other processes may keep adding
/// files.
const RESCANS_MAX: u32 = 16;

/// Removes a location and everything beneath it; returns the number of entries removed.
///
/// Directories without write permission are made writable first. An unreadable directory fails,
/// because it cannot be opened to change its mode. On `Err` part of the tree may be removed.
pub(super) fn remove(location: &Location, stop: &Stop) -> Result<u64, Error> {
    match unlink(&location.dir, location.name.as_bytes()) {
        Err(Errno::ISDIR) => {}
        Err(errno) => return Err(errno).step("remove the file"),
        Ok(()) => return Ok(1),
    }
    match remove_empty(&location.dir, location.name.as_bytes()) {
        Ok(()) => Ok(1),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Removal::start(location)?.run(location, stop),
        Err(errno) => Err(errno).step("remove the directory"),
    }
}

pub(super) fn remove_empty(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Removes a file that is not a directory.
pub(super) fn unlink(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

struct Removal {
    levels: Vec<Level>,
    removed: u64,
}

struct Level {
    entries: Dir,
    handle: Arc<OwnedFd>,
    name: Vec<u8>,
    rescans_left: u32,
    hoisted: bool,
}

impl Removal {
    fn start(top: &Location) -> Result<Self, Error> {
        let level = Level::open(&top.dir, top.name.as_bytes())?;
        Ok(Self {
            levels: vec![level],
            removed: 0,
        })
    }

    fn run(mut self, top: &Location, stop: &Stop) -> Result<u64, Error> {
        while let Some(level) = self.levels.last_mut() {
            stop.check()?;
            match level.next()? {
                Some((name, kind)) => self.remove_entry(&name, kind)?,
                None => self.leave(top)?,
            }
        }
        Ok(self.removed)
    }

    fn remove_entry(&mut self, name: &[u8], kind: FileType) -> Result<(), Error> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let removed = if kind == FileType::Directory {
            remove_empty(&level.handle, name)
        } else {
            unlink(&level.handle, name)
        };
        match removed {
            Ok(()) => self.removed += 1,
            // Vanished, or replaced by another type of file, which the next scan finds.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ISDIR) => self.enter(name)?,
            Err(errno) => return Err(errno).step("remove a file"),
        }
        Ok(())
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), Error> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let next = match Level::open(&level.handle, name) {
            Ok(next) => next,
            // Vanished or replaced; the next scan sees the current state.
            Err(error) if error.is_errno(Errno::NOENT) || error.is_errno(Errno::NOTDIR) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if self.levels.len() < LEVELS_MAX {
            self.levels.push(next);
            return Ok(());
        }
        self.hoist(name)
    }

    /// Moves a directory that is too deep to the top.
    fn hoist(&mut self, name: &[u8]) -> Result<(), Error> {
        let (Some(from), Some(top)) = (self.levels.last(), self.levels.first()) else {
            return Ok(());
        };
        let mut source = unused_location(&from.handle)?;
        source.name = Name::listed(name);
        let to = unused_location(&top.handle)?;
        rename(&source, &to).step("move a deep directory up")?;
        self.levels[0].hoisted = true;
        Ok(())
    }

    fn leave(&mut self, top: &Location) -> Result<(), Error> {
        let Some(mut level) = self.levels.pop() else {
            return Ok(());
        };
        let removed = match self.levels.last() {
            Some(above) => remove_empty(&above.handle, &level.name),
            None => remove_empty(&top.dir, &level.name),
        };
        match removed {
            Ok(()) => self.removed += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.may_rescan() => self.levels.push(level),
            Err(errno) => return Err(errno).step("remove a directory"),
        }
        Ok(())
    }
}

impl Level {
    fn open(dir: impl AsFd, name: &[u8]) -> Result<Self, Error> {
        let fd = open_child(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)
            .step("open a directory to remove it")?;
        let stat = rustix::fs::fstat(&fd).step("stat a directory")?;
        if stat.st_mode & 0o700 != 0o700 {
            // Makes our own read-only directory writable. For someone else's this fails, and the
            // removal then reports a better error.
            let _ = rustix::fs::fchmod(&fd, Mode::RWXU);
        }
        let entries = Dir::read_from(&fd).step("read a directory")?;
        Ok(Self {
            entries,
            handle: fd.into(),
            name: name.to_vec(),
            rescans_left: RESCANS_MAX,
            hoisted: false,
        })
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, FileType)>, Error> {
        while let Some(entry) = self.entries.read() {
            let entry = entry.step("read a directory")?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Ok(Some((name.to_vec(), entry.file_type())));
            }
        }
        Ok(None)
    }

    /// Allows another scan: always after directories were moved here, else a limited number of
    /// times.
    fn may_rescan(&mut self) -> bool {
        if !self.hoisted {
            if self.rescans_left == 0 {
                return false;
            }
            self.rescans_left -= 1;
        }
        self.hoisted = false;
        self.entries.rewind();
        true
    }
}
