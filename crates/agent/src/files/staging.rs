//! Where an archive is unpacked before any of it is visible.
//!
//! A directory in the root, so that everything moves from it by rename. Its name tells which
//! run of the agent made it: what a run that died has left is cleared away by the next one.

use std::sync::{Arc, OnceLock};

use rustix::fs::{Dir, OFlags};
use rustix::rand::GetRandomFlags;

use super::beneath::{Beneath, Location, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::path::{Name, RelPath};
use super::temp::{make_directory, rename_to_free, unused_location};
use super::tree;

/// How the name of every staging directory begins.
const PREFIX: &str = ".hotcell-import-";

/// Entries of the root that are looked at before the agent serves; more of them, and what is
/// found, are for another thread.
const LOOK_AT_ONCE_MAX: usize = 256;

/// Directories of dead runs that one run clears away.
const CLEARED_MAX: usize = 1024;

/// An empty directory that is gone, with all it holds, when this is dropped.
#[derive(Debug)]
pub(super) struct Staging {
    location: Location,
    inside: Beneath,
    is_kept: bool,
}

impl Staging {
    /// Makes one in the root.
    pub(super) fn open(root: &Beneath) -> Result<Self, Error> {
        let name = format!("{PREFIX}{:016x}-{:016x}", run()?, random()?);
        let location = in_root(root, Name::own(name));
        let fd = make_directory(&location.dir, location.name.as_bytes())
            .step("make a temporary directory")?;
        Ok(Self {
            location,
            inside: Beneath::new(fd),
            is_kept: false,
        })
    }

    /// What it holds.
    pub(super) fn inside(&self) -> &Beneath {
        &self.inside
    }

    /// Leaves it under a name that no later run clears away, and answers that name.
    pub(super) fn keep(mut self) -> String {
        self.is_kept = true;
        let kept = unused_location(&self.location.dir)
            .ok()
            .filter(|kept| rename_to_free(&self.location, kept).is_ok());
        let location = kept.as_ref().unwrap_or(&self.location);
        String::from_utf8_lossy(location.name.as_bytes()).into_owned()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nobody waits for it; what cannot be removed is for the next run.
            let _ = tree::remove(&self.location, &Stop::cleanup());
        }
    }
}

/// Clears away what runs that died have left. In a small root without any this costs one
/// look; else a thread does it.
pub(super) fn clear_leftovers(root: &Beneath) {
    let Ok((found, is_all)) = leftovers(root, LOOK_AT_ONCE_MAX) else {
        return;
    };
    if is_all && found.is_empty() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let root = root.clone();
        runtime.spawn_blocking(move || {
            let found = leftovers(&root, usize::MAX).map_or(found, |(found, _)| found);
            for name in found {
                let _ = tree::remove(&in_root(&root, name), &Stop::cleanup());
            }
        });
    }
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
