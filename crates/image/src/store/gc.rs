//! Removes images and unused files.
//!
//! Removal needs exclusive access to the store. Files are moved to `new` under the lock and deleted
//! after it is released, so that nobody waits for a large tree.

use std::collections::BTreeSet;
use std::fs::{self, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hotcell_domain::{Digest, Reference};

use super::lock::Locked;
use super::record::{layers_of, read};
use super::{RefRecord, Store, remove};
use crate::bounds::{PARTIAL_AGE_MAX, PARTIAL_BYTES_MAX};
use crate::{ImageError, InUse};

/// What was or would be removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Image names.
    pub images: usize,
    /// Unpacked layers.
    pub layers: usize,
    /// Partial downloads.
    pub partial: usize,
}

/// What no name and no container needs.
struct Garbage {
    refs: Vec<PathBuf>,
    images: Vec<PathBuf>,
    layers: Vec<PathBuf>,
}

impl Store {
    /// Removes a name and what nothing else needs.
    pub(crate) fn remove(
        &self,
        reference: &Reference,
        in_use: InUse<'_>,
    ) -> Result<Collected, ImageError> {
        let lock = self.exclusive()?;
        let in_use = &in_use().map_err(ImageError::disk("see which images are used"))?;
        let image = self.find(reference).ok_or_else(|| ImageError::NotHere {
            reference: reference.clone(),
        })?;
        if in_use.contains(&image.manifest) {
            let reference = reference.clone();
            return Err(ImageError::InUse { reference });
        }
        let removed = fs::remove_file(self.ref_path(reference));
        removed.map_err(ImageError::disk("remove an image"))?;
        let mut collected = self.collect(in_use, None)?;
        collected.images += 1;
        drop(lock);
        self.empty();
        Ok(collected)
    }

    /// Removes what no name and no container needs; with `idle`, also names of images unused for
    /// this long. Partial downloads that a pull may still resume are kept.
    pub(crate) fn gc(
        &self,
        in_use: InUse<'_>,
        idle: Option<Duration>,
    ) -> Result<Collected, ImageError> {
        let lock = self.exclusive()?;
        let in_use = &in_use().map_err(ImageError::disk("see which images are used"))?;
        let mut collected = self.collect(in_use, idle)?;
        for path in self.given_up()? {
            collected.partial += usize::from(self.move_away(&path));
        }
        for path in self.records("locks")? {
            // Its holder would also share the store's lock, which we hold exclusively.
            let _ = fs::remove_file(path);
        }
        drop(lock);
        self.empty();
        Ok(collected)
    }

    /// What [`Store::gc`] would remove. Takes the exclusive lock, because layers of a running pull
    /// look like leftovers of an interrupted one.
    pub(crate) fn count_garbage(
        &self,
        in_use: InUse<'_>,
        idle: Option<Duration>,
    ) -> Result<Collected, ImageError> {
        let _lock = self.exclusive()?;
        let in_use = &in_use().map_err(ImageError::disk("see which images are used"))?;
        let garbage = self.garbage(in_use, idle)?;
        Ok(Collected {
            images: garbage.refs.len(),
            layers: garbage.layers.len(),
            partial: self.given_up()?.len(),
        })
    }

    fn exclusive(&self) -> Result<Locked, ImageError> {
        let lock = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => Ok(Locked(lock)),
            Err(TryLockError::WouldBlock) => Err(ImageError::Busy),
            Err(TryLockError::Error(error)) => Err(ImageError::disk("lock the image store")(error)),
        }
    }

    fn collect(
        &self,
        in_use: &BTreeSet<Digest>,
        idle: Option<Duration>,
    ) -> Result<Collected, ImageError> {
        let garbage = self.garbage(in_use, idle)?;
        let mut collected = Collected::default();
        for path in &garbage.refs {
            collected.images += usize::from(fs::remove_file(path).is_ok());
        }
        for path in &garbage.images {
            let _ = fs::remove_file(path);
        }
        for path in &garbage.layers {
            collected.layers += usize::from(self.move_away(path));
        }
        Ok(collected)
    }

    fn garbage(
        &self,
        in_use: &BTreeSet<Digest>,
        idle: Option<Duration>,
    ) -> Result<Garbage, ImageError> {
        let mut needed = in_use.clone();
        let mut refs = Vec::new();
        for path in self.records("refs")? {
            match self.kept(&path, in_use, idle) {
                Some(manifest) => drop(needed.insert(manifest)),
                None => refs.push(path),
            }
        }
        let mut needed_layers = BTreeSet::new();
        let mut images = Vec::new();
        for path in self.records("images")? {
            let is_needed = named(&path).is_some_and(|manifest| needed.contains(&manifest));
            match layers_of(&path) {
                Some(own) if is_needed => needed_layers.extend(own),
                _ => images.push(path),
            }
        }
        let mut layers = self.records("layers")?;
        layers.retain(|path| !named(path).is_some_and(|layer| needed_layers.contains(&layer)));
        Ok(Garbage {
            refs,
            images,
            layers,
        })
    }

    /// Partial downloads that are unlikely to be resumed: old ones, and the oldest beyond the size
    /// limit.
    fn given_up(&self) -> Result<Vec<PathBuf>, ImageError> {
        let now = SystemTime::now();
        let mut partial: Vec<_> = self
            .records("blobs")?
            .into_iter()
            .map(|path| {
                let metadata = fs::symlink_metadata(&path).ok();
                let modified = metadata.as_ref().and_then(|it| it.modified().ok());
                let age = modified.map_or(Duration::MAX, |it| {
                    now.duration_since(it).unwrap_or_default()
                });
                (age, metadata.map_or(0, |it| it.len()), path)
            })
            .collect();
        partial.sort();
        let mut kept_bytes = 0_u64;
        let goes = |(age, len, path): (Duration, u64, PathBuf)| {
            kept_bytes = kept_bytes.saturating_add(len);
            let is_kept = age < PARTIAL_AGE_MAX && kept_bytes <= PARTIAL_BYTES_MAX;
            (!is_kept).then_some(path)
        };
        Ok(partial.into_iter().filter_map(goes).collect())
    }

    /// The image of a name that is kept; `None` if the name is removed.
    fn kept(
        &self,
        path: &Path,
        in_use: &BTreeSet<Digest>,
        idle: Option<Duration>,
    ) -> Option<Digest> {
        let record: RefRecord = read(path)?;
        let (manifest, used_at) = self.last_use(&record)?;
        let age = SystemTime::now()
            .duration_since(used_at)
            .unwrap_or_default();
        let is_idle = idle.is_some_and(|idle| age >= idle);
        (!is_idle || in_use.contains(&manifest)).then_some(manifest)
    }

    fn last_use(&self, record: &RefRecord) -> Option<(Digest, SystemTime)> {
        let manifest = Digest::parse(&record.manifest).ok()?;
        let used_at = fs::metadata(self.image_path(&manifest))
            .ok()?
            .modified()
            .ok()?;
        Some((manifest, used_at))
    }

    fn move_away(&self, path: &Path) -> bool {
        let Ok(mut staging) = self.staging_path() else {
            return false;
        };
        let moved = fs::rename(path, &staging.path).is_ok();
        // It is deleted with all others, after the lock is released.
        staging.moved = true;
        moved
    }

    /// Deletes what was moved away and what dead processes left. Running pulls hold the store, so
    /// only what existed a moment ago is deleted.
    fn empty(&self) {
        let Ok(lock) = self.exclusive() else {
            // A pull is running; the next collection deletes the rest.
            return;
        };
        let leftovers: Vec<PathBuf> = self.records("new").unwrap_or_default();
        let aside = self.dir.join("new").join(".out");
        let _ = fs::create_dir(&aside);
        for path in leftovers.iter().filter(|path| **path != aside) {
            if let Some(name) = path.file_name() {
                let _ = fs::rename(path, aside.join(name));
            }
        }
        drop(lock);
        remove(&aside);
    }
}

/// The digest in a file name.
fn named(path: &Path) -> Option<Digest> {
    let stem = path.file_stem()?.to_str()?;
    Digest::parse(&format!("sha256:{stem}")).ok()
}
