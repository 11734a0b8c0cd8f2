//! Removing a tree, however deep and wide, with bounded memory and handles.
//!
//! Every step is one name in a directory we hold open, and no symlink is followed.
//! Up to `LEVELS_MAX` directories are open at a time; a directory below that is
//! moved up into the top of the tree that is being removed and met there again. So
//! a tree of any depth can be removed, without recursion.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Location, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::path::Name;
use super::temp::{rename, unused_location};

/// Directories that are open at a time.
const LEVELS_MAX: usize = 64;

/// How often a directory that is not empty yet is read again: somebody may be
/// filling it while we empty it.
const RESCANS_MAX: u32 = 16;

/// Removes what is at a location and everything beneath it; says how many that were.
///
/// Directories of ours that lack write permission are given it first. One that
/// cannot even be read is refused, as it cannot be opened to change that. On `Err`
/// a part of the tree may be gone.
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

/// Removes an empty directory.
pub(super) fn remove_empty(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Removes anything but a directory.
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
            // Gone, or another kind of file by now, which the next scan meets.
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
            // Gone or swapped meanwhile; the next scan sees what is there now.
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

    /// Moves a directory that lies too deep into the top one.
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
            // A read-only directory of ours; of another's this fails, and so will
            // the removal, with the better message.
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

    /// Starts over, if it may: always after directories were moved up into it.
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
