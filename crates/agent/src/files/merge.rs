//! Moves an unpacked archive into place, so that it can be undone.
//!
//! A new file or directory is moved by one rename, a directory with all its content. A file that
//! replaces another is exchanged with it, so that the staging directory then contains the old one
//! under the same path. Across mounts, a copy does the same. Only directories that exist on both
//! sides are entered. Each step is recorded before it is done, in memory and on disk; reading the
//! records backwards undoes them. Nothing is deleted here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotcell_agent_api::bounds::TREE_DEPTH_MAX;
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath::{Beneath, Location};
use super::blocking::Stop;
use super::copy::duplicate;
use super::error::{Error, Step};
use super::info::is;
use super::merge_journal::{Change, FileId, JOURNAL_BYTES_MAX, MergeJournal, MergeStep};
use super::path::{Name, RelPath};
use super::temp::{exchange, make_directory, rename_to_free};
use super::tree;

/// A staging directory and the destination of its content.
pub(super) struct Merge<'a> {
    staging: &'a Beneath,
    dest: Beneath,
    journal: Option<MergeJournal>,
    steps: Vec<MergeStep>,
    steps_bytes: usize,
    /// Replaced files that could not be moved to the staging directory.
    beside: Vec<Location>,
}

/// A directory that exists on both sides.
struct Level {
    path: RelPath,
    names: std::vec::IntoIter<Vec<u8>>,
    staged: Arc<OwnedFd>,
    target: Arc<OwnedFd>,
    /// The destination is reached through a symlink. A symlink of the archive could point elsewhere
    /// from there than was checked, so none is moved in.
    is_behind_link: bool,
}

impl<'a> Merge<'a> {
    /// Moves from `staging` to `dest`; `journal` records each step in advance.
    pub(super) fn new(staging: &'a Beneath, dest: Beneath, journal: MergeJournal) -> Self {
        Self {
            journal: Some(journal),
            ..Self::to_undo(staging, dest, Vec::new())
        }
    }

    /// A merge begun by an agent that died, to be undone.
    pub(super) fn to_undo(staging: &'a Beneath, dest: Beneath, steps: Vec<MergeStep>) -> Self {
        Self {
            staging,
            dest,
            journal: None,
            steps,
            steps_bytes: 0,
            beside: Vec::new(),
        }
    }

    /// Moves everything. On `Err` some of it is moved: call `undo`.
    pub(super) fn run(&mut self, stop: &Stop) -> Result<(), Error> {
        let mut levels = vec![self.enter(RelPath::default())?];
        while let Some(level) = levels.last_mut() {
            stop.check()?;
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            if let Some(path) = self.settle(level, &name, stop)? {
                if levels.len() >= TREE_DEPTH_MAX {
                    return Err(Error::Exhausted("the tree is too deep"));
                }
                levels.push(self.enter(path)?);
            }
        }
        Ok(())
    }

    /// Sets modes that would have prevented unpacking. A directory that existed before keeps its
    /// mode: its counterpart is still in the staging directory.
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

    /// Undoes every step, last one first; returns whether all succeeded.
    #[must_use]
    pub(super) fn undo(&self) -> bool {
        // Continues after a failure, to undo as much as possible.
        let failed = self.steps.iter().rev();
        let failed = failed.filter(|step| self.undo_one(step).is_err());
        failed.count() == 0
    }

    /// Removes replaced files outside the staging directory: the merge is final.
    pub(super) fn clear(&self) {
        for location in &self.beside {
            let _ = tree::remove(location, &Stop::cleanup());
        }
    }

    /// Undoes a step that was done, or only recorded.
    fn undo_one(&self, step: &MergeStep) -> Result<(), Error> {
        let there = self.dest.location(&step.path)?;
        match step.change {
            Change::Made => match tree::remove_empty(&there.dir, there.name.as_bytes()) {
                Err(Errno::NOENT) => Ok(()),
                removed => removed.step("remove the directory"),
            },
            Change::Moved => {
                let here = self.staging.location(&step.path)?;
                if is_new(&here, step)? {
                    return Ok(());
                }
                rename_to_free(&there, &here).step("move it back")
            }
            Change::Exchanged => {
                let here = self.staging.location(&step.path)?;
                if is_new(&here, step)? {
                    return Ok(());
                }
                exchange_back(&there, &here, step)
            }
            Change::Copied if is_new(&there, step)? => {
                tree::remove(&there, &Stop::cleanup()).map(drop)
            }
            Change::Copied => Ok(()),
            Change::Replaced => {
                let name = step.beside.clone().ok_or(Errno::NOENT);
                let beside = there.sibling(name.step("move it back")?);
                if !is_new(&beside, step)? {
                    exchange_back(&there, &beside, step)?;
                }
                tree::remove(&beside, &Stop::cleanup()).map(drop)
            }
        }
    }

    /// Moves one name, or returns the directory that must be entered instead.
    fn settle(
        &mut self,
        level: &Level,
        name: &[u8],
        stop: &Stop,
    ) -> Result<Option<RelPath>, Error> {
        let path = level.path.child(name);
        let here = at(&level.staged, name, &path);
        let there = at(&level.target, name, &path);
        let new = here.stat()?.ok_or(Error::Archive("it vanished"))?;
        let old = there.stat()?;
        if is(&new, FileType::Directory) {
            return self.settle_directory(level, &here, &there, (new, old), stop);
        }
        if is(&new, FileType::Symlink) && level.is_behind_link {
            return Err(Error::Archive("a symlink would lie behind another one"));
        }
        match old {
            None => self.move_in(&here, &there, &new, stop)?,
            Some(old) if is(&old, FileType::Directory) => {
                return Err(Errno::ISDIR).step("put the file in place");
            }
            Some(_) => self.exchange_with(&here, &there, &new, stop)?,
        }
        Ok(None)
    }

    fn settle_directory(
        &mut self,
        level: &Level,
        here: &Location,
        there: &Location,
        (new, old): (Stat, Option<Stat>),
        stop: &Stop,
    ) -> Result<Option<RelPath>, Error> {
        let path = &here.path;
        if old.is_some() {
            return Ok(Some(path.clone()));
        }
        if level.is_behind_link {
            self.note(path, Change::Made, None, None)?;
            let fd = make_directory(&there.dir, there.name.as_bytes());
            let fd = fd.step("make the directory")?;
            super::copy::set_mode(&fd, &new)?;
            return Ok(Some(path.clone()));
        }
        self.move_in(here, there, &new, stop)?;
        Ok(None)
    }

    /// Moves a file to an unused name; copies it if a rename is not possible.
    fn move_in(
        &mut self,
        here: &Location,
        there: &Location,
        new: &Stat,
        stop: &Stop,
    ) -> Result<(), Error> {
        self.note(&here.path, Change::Moved, Some(new), None)?;
        match rename_to_free(here, there) {
            Err(Errno::XDEV) => {}
            moved => return moved.step("put the file in place"),
        }
        let (copy, new) = duplicate(here, &there.dir, stop)?;
        self.note(&here.path, Change::Copied, Some(&new), None)?;
        copy.publish(there, false)
    }

    /// Exchanges a file with the one that it replaces.
    fn exchange_with(
        &mut self,
        here: &Location,
        there: &Location,
        new: &Stat,
        stop: &Stop,
    ) -> Result<(), Error> {
        self.note(&here.path, Change::Exchanged, Some(new), None)?;
        match exchange(here, there) {
            Err(Errno::XDEV) => {}
            exchanged => return exchanged.step("put the file in place"),
        }
        let (copy, new) = duplicate(here, &there.dir, stop)?;
        let beside = copy.location().clone();
        let name = Some(beside.name.clone());
        self.note(&here.path, Change::Replaced, Some(&new), name)?;
        // From here on the journal owns both.
        copy.forget();
        exchange(&beside, there).step("put the file in place")?;
        self.beside.push(beside);
        Ok(())
    }

    /// Opens a directory that exists on both sides. At the destination it may be a symlink to a
    /// directory, as long as that is beneath the destination.
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

    /// Records a step before it is done.
    fn note(
        &mut self,
        path: &RelPath,
        change: Change,
        new: Option<&Stat>,
        beside: Option<Name>,
    ) -> Result<(), Error> {
        let step = MergeStep {
            path: path.clone(),
            change,
            new: new.map(FileId::from),
            beside,
        };
        self.steps_bytes += path.as_bytes().len() + size_of::<MergeStep>();
        if self.steps_bytes > JOURNAL_BYTES_MAX {
            return Err(Error::Exhausted("the archive replaces too many files"));
        }
        if let Some(journal) = &mut self.journal {
            journal.note(&step)?;
        }
        self.steps.push(step);
        Ok(())
    }
}

/// Whether the location has the file that the step puts there.
fn is_new(location: &Location, step: &MergeStep) -> Result<bool, Error> {
    let id = location.stat()?.as_ref().map(FileId::from);
    Ok(id.is_some() && id == step.new)
}

/// Moves the old file back from `old`. Fails if another process has replaced the new file since.
fn exchange_back(there: &Location, old: &Location, step: &MergeStep) -> Result<(), Error> {
    if !is_new(there, step)? {
        return Err(Errno::NOENT).step("move it back");
    }
    exchange(there, old).step("move it back")
}

/// Reads all names first: a directory that is changed while it is read may return a name twice.
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
