//! Where an archive is unpacked before any of it is visible.
//!
//! ```text
//!  .hotcell-import-RUN-RANDOM/   in the root, so that everything moves from it by rename
//!    content/                    what was unpacked
//!    journal                     while it is moved in: see `merge_journal`
//! ```
//!
//! The name tells which run of the agent made it. What a run that died has left is cleared
//! away by the next one, which first takes back what the journal tells.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use tokio::sync::Mutex;

use super::beneath::{Beneath, Location, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::merge::Merge;
use super::merge_journal::{self, MergeJournal};
use super::path::{Name, RelPath};
use super::temp::{make_directory, rename_to_free, unused_location};
use super::tree;
use crate::log;

/// How the name of every staging directory begins.
const PREFIX: &str = ".hotcell-import-";

/// Where in a staging directory the content is.
const CONTENT: &[u8] = b"content";

/// Entries of the root that are looked at before the agent serves; more of them, and what is
/// found, are for another thread.
const LOOK_AT_ONCE_MAX: usize = 256;

/// Directories of dead runs that one run clears away.
const CLEARED_MAX: usize = 1024;

/// An empty directory that is gone, with all it holds, when this is dropped.
#[derive(Debug)]
pub(super) struct Staging {
    location: Location,
    top: OwnedFd,
    content: Beneath,
    is_kept: bool,
}

impl Staging {
    /// Makes one in the root.
    pub(super) fn open(root: &Beneath) -> Result<Self, Error> {
        let name = format!("{PREFIX}{:016x}-{:016x}", run()?, random()?);
        let location = in_root(root, Name::own(name));
        let fd = make_directory(&location.dir, location.name.as_bytes())
            .step("make a temporary directory")?;
        let content = make_directory(&fd, CONTENT).step("make a temporary directory")?;
        Ok(Self {
            location,
            top: fd,
            content: Beneath::new(content),
            is_kept: false,
        })
    }

    /// Where archives are unpacked.
    pub(super) fn content(&self) -> &Beneath {
        &self.content
    }

    /// Begins the journal of a merge to `dest`.
    pub(super) fn begin_merge(&self, dest: &RelPath) -> Result<MergeJournal, Error> {
        MergeJournal::create(&self.top, dest)
    }

    /// Makes the merge final: no later run takes it back.
    pub(super) fn commit_merge(&self) -> Result<(), Error> {
        merge_journal::commit(&self.top)
    }

    /// Leaves it under a name that no later run clears away, and answers that name.
    pub(super) fn keep(mut self) -> String {
        self.is_kept = true;
        keep(&self.location)
    }
}

fn keep(location: &Location) -> String {
    let kept = unused_location(&location.dir)
        .ok()
        .filter(|kept| rename_to_free(location, kept).is_ok());
    let location = kept.as_ref().unwrap_or(location);
    String::from_utf8_lossy(location.name.as_bytes()).into_owned()
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nobody waits for it; what cannot be removed is for the next run.
            let _ = tree::remove(&self.location, &Stop::cleanup());
        }
    }
}

/// Clears away what runs that died have left, and takes back what they had moved. In a small
/// root without any this costs one look; else a thread does it, and nothing is changed
/// meanwhile.
pub(super) fn clear_leftovers(root: &Beneath, changes: &Arc<Mutex<()>>) {
    let Ok((found, is_all)) = leftovers(root, LOOK_AT_ONCE_MAX) else {
        return;
    };
    if is_all && found.is_empty() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let (root, changes) = (root.clone(), Arc::clone(changes));
        runtime.spawn_blocking(move || {
            let found = leftovers(&root, usize::MAX).map_or(found, |(found, _)| found);
            let mut left = Vec::new();
            {
                let _lock = changes.blocking_lock();
                for name in found {
                    let location = in_root(&root, name);
                    if recover(&root, &location) {
                        left.push(location);
                    }
                }
            }
            for location in left {
                let _ = tree::remove(&location, &Stop::cleanup());
            }
        });
    }
}

/// Takes back what a dead run had moved out of its staging directory; says whether that may
/// go now. One that still has something of somebody's is kept under another name.
fn recover(root: &Beneath, location: &Location) -> bool {
    let undone = undo_merge(root, location);
    if !matches!(undone, Ok(true)) {
        let kept = keep(location);
        log::line(format_args!(
            "an import that was cut off was not wholly undone; the rest lies in {kept}"
        ));
    }
    matches!(undone, Ok(true))
}

fn undo_merge(root: &Beneath, location: &Location) -> Result<bool, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let top = match location.open(flags) {
        // It is nothing of ours, and goes.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(true),
        top => top.step("open the staging directory")?,
    };
    let Some((dest, steps)) = merge_journal::read(&top)? else {
        return Ok(true);
    };
    let content = open_child(&top, CONTENT, flags).step("open the staging directory")?;
    let content = Beneath::new(content);
    let dest = root.narrowed(&dest)?;
    if !Merge::to_undo(&content, dest, steps).undo() {
        return Ok(false);
    }
    merge_journal::commit(&top)?;
    Ok(true)
}

/// What earlier runs left, and whether the whole root was looked at.
fn leftovers(root: &Beneath, look_at_max: usize) -> Result<(Vec<Name>, bool), Error> {
    let own = format!("{PREFIX}{:016x}-", run()?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = open_child(root.fd(), b".", flags).step("open the root")?;
    let entries = Dir::new(fd).step("read the root")?;
    let mut found = Vec::new();
    for (count, entry) in entries.enumerate() {
        if count >= look_at_max || found.len() >= CLEARED_MAX {
            return Ok((found, false));
        }
        let entry = entry.step("read the root")?;
        let name = entry.file_name().to_bytes();
        if is_ours(name) && !name.starts_with(own.as_bytes()) {
            found.push(Name::listed(name));
        }
    }
    Ok((found, true))
}

fn is_ours(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else {
        return false;
    };
    let is_number = |part: &[u8]| part.len() == 16 && part.iter().all(u8::is_ascii_hexdigit);
    rest.len() == 33 && is_number(&rest[..16]) && rest[16] == b'-' && is_number(&rest[17..])
}

fn in_root(root: &Beneath, name: Name) -> Location {
    Location {
        dir: Arc::clone(root.fd()),
        path: RelPath::default().child(name.as_bytes()),
        name,
    }
}

/// A number that this run of the agent has for itself.
fn run() -> Result<u64, Error> {
    static RUN: OnceLock<u64> = OnceLock::new();
    let fresh = random()?;
    Ok(*RUN.get_or_init(|| fresh))
}

fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()).step("get random bytes")?;
    Ok(u64::from_ne_bytes(bytes))
}
