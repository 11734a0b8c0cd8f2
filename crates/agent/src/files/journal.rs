//! Changes that can be undone.
//!
//! New files are created in a hidden staging directory on the root's filesystem, and replaced or
//! deleted files are moved there. So each change is one or two renames, and reading the journal
//! backwards undoes it. On another mount, a hidden name beside the target takes the role of the
//! staging directory. Nothing is deleted before `clear`. If the agent dies in between, the staging
//! directory is left over.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Beneath, Location};
use super::blocking::Stop;
use super::copy::duplicate;
use super::error::{Error, Step};
use super::mount::is_same_mount;
use super::stage::Stage;
use super::temp::{Temp, exchange, rename_to_free, unused_location};
use super::tree;

/// The staging directory and the changes so far.
#[derive(Debug)]
pub(super) struct Journal {
    staging: Location,
    handle: Arc<OwnedFd>,
    done: Vec<UndoStep>,
    /// Set when it contains files that could not be moved back.
    is_needed: bool,
    /// Hidden names beside their targets, for targets on another mount than the staging directory.
    beside: Vec<Location>,
}

/// One change, with all that is needed to undo it.
#[derive(Debug)]
enum UndoStep {
    Moved {
        from: Location,
        to: Location,
    },
    Exchanged {
        one: Location,
        other: Location,
    },
    /// A directory of a lower overlay layer, which cannot be renamed.
    Copied {
        from: Location,
        to: Location,
    },
}

impl Journal {
    /// Creates the staging directory.
    pub(super) fn open(root: &Beneath) -> Result<Self, Error> {
        let (temp, fd) = Temp::directory(root.fd())?;
        let staging = temp.location().clone();
        temp.forget();
        Ok(Self {
            staging,
            handle: fd.into(),
            done: Vec::new(),
            is_needed: false,
            beside: Vec::new(),
        })
    }

    /// Undoes every change, last one first.
    ///
    /// On `Err` it has undone as much as possible. The staging directory with the returned name
    /// contains what could not be moved back.
    pub(super) fn undo(&mut self) -> Result<(), String> {
        for done in self.done.iter().rev() {
            self.is_needed |= done.undo().is_err();
        }
        if self.is_needed {
            return Err(String::from_utf8_lossy(self.staging.name.as_bytes()).into_owned());
        }
        Ok(())
    }

    /// Deletes the displaced files: the changes are final, or have been undone.
    pub(super) fn clear(self) {
        if !self.is_needed {
            // The batch is done; leftovers that cannot be removed do not undo it.
            let _ = tree::remove(&self.staging, &Stop::cleanup());
            for location in &self.beside {
                let _ = tree::remove(location, &Stop::cleanup());
            }
        }
    }

    fn move_to_free(&mut self, from: &Location, to: &Location) -> rustix::io::Result<()> {
        rename_to_free(from, to)?;
        self.done.push(UndoStep::Moved {
            from: from.clone(),
            to: to.clone(),
        });
        Ok(())
    }

    fn swap(&mut self, one: &Location, other: &Location) -> rustix::io::Result<()> {
        exchange(one, other)?;
        self.done.push(UndoStep::Exchanged {
            one: one.clone(),
            other: other.clone(),
        });
        Ok(())
    }

    fn set_aside(&mut self, location: &Location, stop: &Stop) -> Result<(), Error> {
        let dir = self.temp_dir(location);
        let aside = unused_location(&dir)?;
        self.note_beside(&aside);
        match self.move_to_free(location, &aside) {
            Err(Errno::XDEV) => self.set_copy_aside(location, &dir, stop),
            moved => moved.step("set the file aside"),
        }
    }

    fn set_copy_aside(
        &mut self,
        location: &Location,
        dir: &Arc<OwnedFd>,
        stop: &Stop,
    ) -> Result<(), Error> {
        let (copy, _) = duplicate(location, dir, stop)?;
        self.note_beside(copy.location());
        self.done.push(UndoStep::Copied {
            from: location.clone(),
            to: copy.location().clone(),
        });
        copy.forget();
        tree::remove(location, stop).map(drop)
    }

    /// Remembers a file outside the staging directory that `clear` has to remove.
    fn note_beside(&mut self, temp: &Location) {
        if !Arc::ptr_eq(&temp.dir, &self.handle) {
            self.beside.push(temp.clone());
        }
    }
}

impl UndoStep {
    fn undo(&self) -> rustix::io::Result<()> {
        match self {
            Self::Moved { from, to } => rename_to_free(to, from),
            Self::Exchanged { one, other } => exchange(one, other),
            Self::Copied { from, to } => {
                // Restores the part that was not removed yet.
                let _ = tree::remove(from, &Stop::cleanup());
                rename_to_free(to, from)
            }
        }
    }
}

impl Stage for Journal {
    fn temp_dir(&self, location: &Location) -> Arc<OwnedFd> {
        if is_same_mount(&self.handle, &location.dir) {
            Arc::clone(&self.handle)
        } else {
            Arc::clone(&location.dir)
        }
    }

    fn publish(&mut self, temp: Temp, location: &Location, replace: bool) -> Result<(), Error> {
        match self.move_to_free(temp.location(), location) {
            Err(Errno::EXIST) if replace => self.swap(temp.location(), location),
            other => other,
        }
        .map_err(Error::of_rename("put the file in place"))?;
        // The journal now owns the file under the temporary name.
        self.note_beside(temp.location());
        temp.forget();
        Ok(())
    }

    fn make_directory(&mut self, location: &Location, mode: u32) -> Result<(), Error> {
        let (temp, fd) = Temp::directory(&self.temp_dir(location))?;
        self.publish(temp, location, false)?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).step("set the mode")
    }

    fn relocate(
        &mut self,
        from: &Location,
        to: &Location,
        replace: bool,
        stop: &Stop,
    ) -> Result<bool, Error> {
        let moved = match self.move_to_free(from, to) {
            Err(Errno::EXIST) if replace && same(from, to)? => return Ok(false),
            Err(Errno::EXIST) if replace => match self.swap(from, to) {
                Ok(()) => return self.set_aside(from, stop).map(|()| false),
                failed => failed,
            },
            moved => moved,
        };
        match moved {
            Err(Errno::XDEV) => {
                let (copy, _) = duplicate(from, &self.temp_dir(to), stop)?;
                self.publish(copy, to, replace)?;
                self.set_aside(from, stop).map(|()| true)
            }
            moved => moved.step("move the file").map(|()| false),
        }
    }

    fn discard(&mut self, location: &Location, recursive: bool, stop: &Stop) -> Result<u64, Error> {
        if !recursive && location.is_directory()? {
            return self.set_aside_empty(location, stop).map(|()| 1);
        }
        self.set_aside(location, stop).map(|()| 1)
    }
}

impl Journal {
    /// Moves a directory to the staging directory only if it is empty. The check comes after the
    /// move and undoes it if it fails, so that a file created concurrently is not lost.
    fn set_aside_empty(&mut self, location: &Location, stop: &Stop) -> Result<(), Error> {
        self.set_aside(location, stop)?;
        let Some(UndoStep::Moved { to, .. } | UndoStep::Copied { to, .. }) = self.done.last()
        else {
            return Ok(());
        };
        let fd = to
            .open(OFlags::RDONLY | OFlags::DIRECTORY)
            .step("open the directory")?;
        let mut entries = Dir::read_from(&fd).step("read the directory")?;
        let used = entries.any(|entry| entry.is_ok_and(|entry| !is_dots(entry.file_name())));
        if used {
            Err(Errno::NOTEMPTY).step("remove the directory")
        } else {
            Ok(())
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn same(one: &Location, other: &Location) -> Result<bool, Error> {
    Ok(match (one.stat()?, other.stat()?) {
        (Some(one), Some(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    })
}
