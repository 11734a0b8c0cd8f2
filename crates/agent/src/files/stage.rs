//! How a change becomes visible.
//!
//! Operations are written once, against the trait `Stage`. `Direct` applies changes at once;
//! `Journal` (for atomic batches) applies them so that they can be undone.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use super::beneath::{Beneath, Location};
use super::blocking::Stop;
use super::copy::duplicate;
use super::error::{Error, Step};
use super::info::is;
use super::path::RelPath;
use super::temp::{Temp, make_directory, rename, rename_to_free, unused_location};
use super::tree;

/// The mode of parent directories that are created implicitly.
pub(super) const PARENT_MODE: u32 = 0o755;

/// The primitive changes of which operations are composed.
pub(super) trait Stage {
    /// The directory in which to create what will appear at `location`: on the same filesystem.
    fn temp_dir(&self, location: &Location) -> Arc<OwnedFd>;

    /// Moves a finished file into place. With `replace` it may replace a file.
    fn publish(&mut self, temp: Temp, location: &Location, replace: bool) -> Result<(), Error>;

    /// Creates a directory; EEXIST if there is one.
    fn make_directory(&mut self, location: &Location, mode: u32) -> Result<(), Error>;

    /// Moves a file. With `replace` it may replace a file. Returns whether it had to be copied
    /// because a rename was not possible.
    fn relocate(
        &mut self,
        from: &Location,
        to: &Location,
        replace: bool,
        stop: &Stop,
    ) -> Result<bool, Error>;

    /// Removes a file or, if `recursive` or empty, a directory; returns the number of entries
    /// removed.
    fn discard(&mut self, location: &Location, recursive: bool, stop: &Stop) -> Result<u64, Error>;
}

/// Applies changes at once. Dropping it removes parent directories that were created for an
/// operation that then failed; call `keep` when it succeeds.
#[derive(Debug, Default)]
pub(super) struct Direct {
    made: Vec<Location>,
    may_copy: bool,
}

impl Direct {
    /// For a blocking thread: copies what cannot be renamed. Otherwise that is
    /// [`Error::OtherFilesystem`], and nothing has changed.
    pub(super) fn copying() -> Self {
        Self {
            made: Vec::new(),
            may_copy: true,
        }
    }

    /// The operation has succeeded: implicitly created directories stay.
    pub(super) fn keep(&mut self) {
        self.made.clear();
    }

    /// Like `keep`, if `is_done`.
    pub(super) fn keep_if(&mut self, is_done: bool) {
        if is_done {
            self.keep();
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        for location in self.made.iter().rev() {
            let _ = tree::remove_empty(&location.dir, location.name.as_bytes());
        }
    }
}

impl Stage for Direct {
    fn temp_dir(&self, location: &Location) -> Arc<OwnedFd> {
        Arc::clone(&location.dir)
    }

    fn publish(&mut self, temp: Temp, location: &Location, replace: bool) -> Result<(), Error> {
        temp.publish(location, replace)
    }

    fn make_directory(&mut self, location: &Location, mode: u32) -> Result<(), Error> {
        let fd =
            make_directory(&location.dir, location.name.as_bytes()).step("make the directory")?;
        self.made.push(location.clone());
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).step("set the mode")
    }

    fn relocate(
        &mut self,
        from: &Location,
        to: &Location,
        replace: bool,
        stop: &Stop,
    ) -> Result<bool, Error> {
        let moved = if replace {
            rename(from, to)
        } else {
            rename_to_free(from, to)
        };
        match moved {
            Err(Errno::XDEV) if self.may_copy => move_by_copy(from, to, replace, stop),
            moved => moved
                .map_err(Error::of_rename("move the file"))
                .map(|()| false),
        }
    }

    fn discard(&mut self, location: &Location, recursive: bool, stop: &Stop) -> Result<u64, Error> {
        if recursive {
            return tree::remove(location, stop);
        }
        let removed = if location.is_directory()? {
            tree::remove_empty(&location.dir, location.name.as_bytes())
        } else {
            tree::unlink(&location.dir, location.name.as_bytes())
        };
        removed.step("remove the file").map(|()| 1)
    }
}

/// Copies, then publishes the copy and removes the source, each in one step. On `Err` neither has
/// happened, except if a source in a lower overlay layer could not be removed.
fn move_by_copy(from: &Location, to: &Location, replace: bool, stop: &Stop) -> Result<bool, Error> {
    let (copy, _) = duplicate(from, &to.dir, stop)?;
    let aside = unused_location(&from.dir)?;
    let is_aside = match rename_to_free(from, &aside) {
        // A directory in a lower overlay layer, which cannot be renamed at all.
        Err(Errno::XDEV) => false,
        moved => moved.step("move the file").map(|()| true)?,
    };
    let published = copy.publish(to, replace);
    if is_aside && published.is_err() {
        let _ = rename_to_free(&aside, from);
    }
    published?;
    if is_aside {
        // The move is done; leftovers that cannot be removed do not undo it.
        let _ = tree::remove(&aside, &Stop::cleanup());
    } else {
        tree::remove(from, stop)?;
    }
    Ok(true)
}

/// Creates a directory and its missing parents.
pub(super) fn make_directories(
    root: &Beneath,
    path: &RelPath,
    stage: &mut impl Stage,
) -> Result<(), Error> {
    match root.directory(path) {
        Err(error) if error.is_errno(Errno::NOENT) => {}
        other => return other.map(drop),
    }
    let mut here = RelPath::default();
    for component in path.components() {
        here = here.child(component);
        match root.directory(&here) {
            Err(error) if error.is_errno(Errno::NOENT) => {}
            other => {
                other?;
                continue;
            }
        }
        match stage.make_directory(&root.location(&here)?, PARENT_MODE) {
            Err(error) if !error.is_errno(Errno::EXIST) => return Err(error),
            // EEXIST: another process was faster. A dangling symlink is noticed in the next step.
            _ => {}
        }
    }
    root.directory(path).map(drop)
}

/// The location of a path; creates its parents if requested.
pub(super) fn locate_with_parents(
    root: &Beneath,
    path: &RelPath,
    create_parents: bool,
    stage: &mut impl Stage,
) -> Result<Location, Error> {
    if create_parents {
        make_directories(root, &path.split()?.0, stage)?;
    }
    root.location(path)
}

/// Refuses to replace a directory, and any file unless `overwrite`.
pub(super) fn check_destination(location: &Location, overwrite: bool) -> Result<(), Error> {
    match location.stat()? {
        Some(stat) if !overwrite => Err(Error::Exists {
            etag: super::etag::etag(&stat),
        }),
        Some(stat) if is(&stat, FileType::Directory) => {
            Err(Error::WrongKind("the destination is a directory"))
        }
        Some(_) | None => Ok(()),
    }
}
