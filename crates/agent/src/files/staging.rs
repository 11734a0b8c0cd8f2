//! The hidden directory into which an archive is unpacked before it becomes visible.
//!
//! ```text
//!  .hotcell-import-RUN-RANDOM/   in the root, so that everything moves from it by rename
//!    content/                    what was unpacked
//!    journal                     while it is moved in: see `merge_journal`
//! ```
//!
//! `RUN` identifies the agent process that created it. The next agent undoes the unfinished
//! merge of one that died, by its journal, and removes its directory.

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

/// The common prefix of staging directories.
const PREFIX: &str = ".hotcell-import-";

const CONTENT: &[u8] = b"content";

/// Entries of the root that are scanned before the agent starts serving. If there are more, or if
/// leftovers are found, a thread does the rest.
const LOOK_AT_ONCE_MAX: usize = 256;

/// Leftover directories that one agent removes.
const CLEARED_MAX: usize = 1024;

/// A directory that is removed with its content when dropped.
#[derive(Debug)]
pub(super) struct Staging {
    location: Location,
    top: OwnedFd,
    content: Beneath,
    is_kept: bool,
}

impl Staging {
    /// Creates one in the root.
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

    /// Creates the journal of a merge to `dest`.
    pub(super) fn begin_merge(&self, dest: &RelPath) -> Result<MergeJournal, Error> {
        MergeJournal::create(&self.top, dest)
    }

    /// Makes the merge final: no later agent undoes it.
    pub(super) fn commit_merge(&self) -> Result<(), Error> {
        merge_journal::commit(&self.top)
    }

    /// Keeps the directory under a name that no later agent removes, and returns the name.
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
            // Nobody waits for this; what cannot be removed is left for the next agent.
            let _ = tree::remove(&self.location, &Stop::cleanup());
        }
    }
}

/// Removes what dead agents have left and undoes their unfinished merges. In a small root without
/// leftovers this takes one scan; otherwise a thread does it while holding the change lock.
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

/// Undoes the unfinished merge of a dead agent; returns whether its staging directory may be
/// removed. If it still contains files of the user, it is kept under another name.
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
        // Not one of our directories; remove it.
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

/// Leftovers of earlier agents, and whether the whole root was scanned.
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

/// A random number that identifies this run of the agent.
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
