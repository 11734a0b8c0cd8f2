//! All logs: where they are, which are being written, and where readers are.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_domain::ExecId;

use super::cursors::Cursors;
use super::layout::Layout;
use super::part;
use crate::StoreError;
use crate::lock::Lock;

/// The directory of logs. Whoever writes there holds the lock.
#[derive(Debug)]
pub(crate) struct Logs {
    directory: PathBuf,
    living: Mutex<HashMap<ExecId, Arc<Living>>>,
    cursors: Mutex<Cursors>,
    _lock: Lock,
}

/// A log that is being written, as its writer last left it.
#[derive(Debug)]
pub(super) struct Living(Mutex<Now>);

#[derive(Debug, Clone, Default)]
pub(super) struct Now {
    pub(super) layout: Layout,
    pub(super) last_seq: u64,
}

impl Logs {
    pub(crate) fn new(directory: PathBuf, lock: Lock) -> Self {
        Self {
            directory,
            living: Mutex::default(),
            cursors: Mutex::default(),
            _lock: lock,
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn cursors(&self) -> MutexGuard<'_, Cursors> {
        hold(&self.cursors)
    }

    /// The log, if it is being written.
    pub(super) fn living(&self, id: &ExecId) -> Option<Arc<Living>> {
        hold(&self.living).get(id).cloned()
    }

    /// Begins to write a log. `None` if it is being written.
    pub(super) fn enter(&self, id: &ExecId) -> Option<Arc<Living>> {
        let mut all = hold(&self.living);
        if all.contains_key(id) {
            return None;
        }
        let living = Arc::new(Living(Mutex::default()));
        all.insert(id.clone(), Arc::clone(&living));
        Some(living)
    }

    /// Nobody writes it any more.
    pub(super) fn leave(&self, id: &ExecId) {
        hold(&self.living).remove(id);
    }

    /// The execs that have a log.
    pub(crate) fn list(&self) -> Result<BTreeSet<ExecId>, StoreError> {
        let failed = |error| StoreError::io("list the logs", error);
        let mut ids = BTreeSet::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            ids.extend(name.to_str().and_then(part::owner));
        }
        Ok(ids)
    }

    /// What a log takes of the disk.
    pub(crate) fn bytes(&self, id: &ExecId) -> u64 {
        let sizes = part::paths(&self.directory, id).map(std::fs::metadata);
        sizes.flatten().map(|file| file.len()).sum()
    }

    /// Removes a log, unless it is being written.
    pub(crate) fn remove(&self, id: &ExecId) -> Result<(), StoreError> {
        let all = hold(&self.living);
        if all.contains_key(id) {
            return Ok(());
        }
        for path in part::paths(&self.directory, id) {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("remove a log", error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Living {
    pub(super) fn now(&self) -> MutexGuard<'_, Now> {
        hold(&self.0)
    }
}

/// What these locks guard is whole between any two statements, so that a panic elsewhere
/// is no reason to stop.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
