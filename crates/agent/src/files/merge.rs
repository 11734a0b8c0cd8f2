//! Moving an unpacked archive to where it belongs, so that it can be taken back.
//!
//! What is new moves in by one rename, a directory with all it holds. A file that replaces
//! another changes places with it, so the staging directory then holds the old one under the
//! same path. Only directories that are on both sides are entered. The list of what was done,
//! read backwards, undoes it; nothing is destroyed here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotcell_agent_api::bounds::TREE_DEPTH_MAX;
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath::{Beneath, Location};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::info::is;
use super::path::{Name, RelPath};
use super::temp::{exchange, make_directory, rename_to_free};
use super::tree;

/// Memory for the paths of what was done: some hundred thousand replaced files.
const JOURNAL_BYTES_MAX: usize = 64 << 20;

/// A staging directory and where its content goes.
pub(super) struct Merge<'a> {
    staging: &'a Beneath,
    dest: Beneath,
    done: Vec<MergeStep>,
    done_bytes: usize,
}

/// One change. Its path is the same in the staging directory and in the destination.
struct MergeStep {
    path: RelPath,
    change: Change,
}

#[derive(Clone, Copy)]
enum Change {
    Moved,
    Exchanged,
    Made,
}

/// A directory that is on both sides.
struct Level {
    path: RelPath,
    names: std::vec::IntoIter<Vec<u8>>,
    staged: Arc<OwnedFd>,
    target: Arc<OwnedFd>,
    /// On the other side it is reached through a symlink. There a symlink of the archive
    /// could lead elsewhere than was checked, so none is moved in.
    is_behind_link: bool,
}

impl<'a> Merge<'a> {
    /// Moves from `staging` to `dest`.
    pub(super) fn new(staging: &'a Beneath, dest: Beneath) -> Self {
        Self {
            staging,
            dest,
            done: Vec::new(),
            done_bytes: 0,
        }
    }

    /// Moves everything. On `Err` a part is moved: call `undo`.
    pub(super) fn run(&mut self, stop: &Stop) -> Result<(), Error> {
        let mut levels = vec![self.enter(RelPath::default())?];
        while let Some(level) = levels.last_mut() {
            stop.check()?;
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            if let Some(path) = self.settle(level, &name)? {
                if levels.len() >= TREE_DEPTH_MAX {
                    return Err(Error::Exhausted("the tree is too deep"));
                }
                levels.push(self.enter(path)?);
            }
        }
        Ok(())
    }

    /// Sets modes of directories that forbid to fill them. One that was there before keeps
    /// its own: its twin is still in the staging directory.
    pub(super) fn set_modes(&self, modes: &[(RelPath, u32)]) -> Result<(), Error> {
        for (path, mode) in modes.iter().rev() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            if self.staging.plain(path, flags).is_ok() {
                continue;
            }
            match self.dest.plain(path, flags) {
                Ok(fd) => {
                    let mode = Mode::from_raw_mode(*mode);
                    rustix::fs::fchmod(&fd, mode).step("set the mode")?;
                }
                // Replaced by a later member.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(errno).step("set the mode"),
            }
        }
        Ok(())
    }

    /// Takes every change back, the last one first; says whether all of it went.
    #[must_use]
    pub(super) fn undo(&self) -> bool {
        // As far as it goes: one that stays does not keep the others.
        let failed = self.done.iter().rev();
        let failed = failed.filter(|done| self.undo_one(done).is_err());
        failed.count() == 0
    }

    fn undo_one(&self, done: &MergeStep) -> Result<(), Error> {
        let there = self.dest.location(&done.path)?;
        if matches!(done.change, Change::Made) {
            let removed = tree::remove_empty(&there.dir, there.name.as_bytes());
            return removed.step("remove the directory");
        }
        let here = self.staging.location(&done.path)?;
        match done.change {
            Change::Exchanged => exchange(&there, &here),
            Change::Moved | Change::Made => rename_to_free(&there, &here),
        }
        .step("move it back")
    }

    /// Moves one name, or answers the directory that must be entered instead.
    fn settle(&mut self, level: &Level, name: &[u8]) -> Result<Option<RelPath>, Error> {
        let path = level.path.child(name);
        let here = at(&level.staged, name, &path);
        let there = at(&level.target, name, &path);
        let new = here.stat()?.ok_or(Error::Archive("it vanished"))?;
        let old = there.stat()?;
        if is(&new, FileType::Directory) {
            return self.settle_directory(level, &here, &there, (new, old));
        }
        if is(&new, FileType::Symlink) && level.is_behind_link {
            return Err(Error::Archive("a symlink would lie behind another one"));
        }
        let change = match old {
            None => {
                rename_to_free(&here, &there).step("put the file in place")?;
                Change::Moved
            }
            Some(old) if is(&old, FileType::Directory) => {
                return Err(Errno::ISDIR).step("put the file in place");
            }
            Some(_) => {
                exchange(&here, &there).step("put the file in place")?;
                Change::Exchanged
            }
        };
        self.note(path, change)?;
        Ok(None)
    }

    fn settle_directory(
        &mut self,
        level: &Level,
        here: &Location,
        there: &Location,
        (new, old): (Stat, Option<Stat>),
    ) -> Result<Option<RelPath>, Error> {
        let path = &here.path;
        if old.is_some() {
            return Ok(Some(path.clone()));
        }
        if level.is_behind_link {
            let fd = make_directory(&there.dir, there.name.as_bytes());
            let fd = fd.step("make the directory")?;
            self.note(path.clone(), Change::Made)?;
            super::copy::set_mode(&fd, &new)?;
            return Ok(Some(path.clone()));
        }
        rename_to_free(here, there).step("put the directory in place")?;
        self.note(path.clone(), Change::Moved)?;
        Ok(None)
    }

    /// What is on both sides. On the other side it may be a symlink to a directory, as long
    /// as that lies beneath the destination.
    fn enter(&self, path: RelPath) -> Result<Level, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let staged = self.staging.plain(&path, flags);
        let staged = staged.step("open the unpacked directory")?;
        let target = self.dest.directory(&path)?;
        let is_behind_link = self
            .dest
            .plain(&path, OFlags::PATH | OFlags::DIRECTORY)
            .is_err();
        Ok(Level {
            path,
            names: names(&staged)?.into_iter(),
            staged: staged.into(),
            target: target.into(),
            is_behind_link,
        })
    }

    fn note(&mut self, path: RelPath, change: Change) -> Result<(), Error> {
        self.done_bytes += path.as_bytes().len() + size_of::<MergeStep>();
        self.done.push(MergeStep { path, change });
        if self.done_bytes > JOURNAL_BYTES_MAX {
            return Err(Error::Exhausted("the archive replaces too many files"));
        }
        Ok(())
    }
}

/// All names at once: a directory that is changed while it is read may show one twice.
fn names(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Error> {
    let entries = Dir::read_from(dir).step("read the unpacked directory")?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.step("read the unpacked directory")?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

fn at(dir: &Arc<OwnedFd>, name: &[u8], path: &RelPath) -> Location {
    Location {
        dir: Arc::clone(dir),
        name: Name::listed(name),
        path: path.clone(),
    }
}
