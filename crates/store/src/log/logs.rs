//! All logs: their directory, which are being written, and where readers are.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_domain::ExecId;

use super::cursors::Cursors;
use super::layout::Layout;
use super::part;
use crate::StoreError;
use crate::lock::StateLock;

/// The directory of logs. Holds the store's lock, unless the store is private to this process.
#[derive(Debug)]
pub(crate) struct Logs {
    directory: PathBuf,
    open: Mutex<HashMap<ExecId, Arc<OpenLog>>>,
    cursors: Mutex<Cursors>,
    _lock: Option<StateLock>,
}

/// A log that is being written, as of its writer's last append.
#[derive(Debug)]
pub(super) struct OpenLog(Mutex<OpenLogState>);

#[derive(Debug, Clone, Default)]
pub(super) struct OpenLogState {
    pub(super) layout: Layout,
    pub(super) last_seq: u64,
}

impl Logs {
    pub(crate) fn new(directory: PathBuf, lock: Option<StateLock>) -> Self {
        Self {
            directory,
            open: Mutex::default(),
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

    pub(super) fn open_log(&self, id: &ExecId) -> Option<Arc<OpenLog>> {
        hold(&self.open).get(id).cloned()
    }

    /// Opens a log for writing. `None` if it already is.
    pub(super) fn open_for_writing(&self, id: &ExecId) -> Option<Arc<OpenLog>> {
        let mut all = hold(&self.open);
        if all.contains_key(id) {
            return None;
        }
        let log = Arc::new(OpenLog(Mutex::default()));
        all.insert(id.clone(), Arc::clone(&log));
        Some(log)
    }

    /// Called when its writer is dropped.
    pub(super) fn close(&self, id: &ExecId) {
        hold(&self.open).remove(id);
    }

    pub(crate) fn list(&self) -> Result<BTreeSet<ExecId>, StoreError> {
        let failed = |error| StoreError::io("list the logs", error);
        let mut ids = BTreeSet::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            ids.extend(name.to_str().and_then(part::owner));
        }
        Ok(ids)
    }

    /// The disk usage of a log.
    pub(crate) fn bytes(&self, id: &ExecId) -> u64 {
        let sizes = part::paths(&self.directory, id).map(std::fs::metadata);
        sizes.flatten().map(|file| file.len()).sum()
    }

    /// The same for an exec that has just ended. Most have written little or nothing, so what comes
    /// after the head is only looked for if there is one.
    pub(crate) fn bytes_at_end(&self, id: &ExecId) -> u64 {
        let head = part::path(&self.directory, id, 0);
        if head.exists() { self.bytes(id) } else { 0 }
    }

    /// Removes a log, unless it is being written.
    pub(crate) fn remove(&self, id: &ExecId) -> Result<(), StoreError> {
        let all = hold(&self.open);
        if all.contains_key(id) {
            return Ok(());
        }
        for path in part::all_paths(&self.directory, id) {
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

impl OpenLog {
    pub(super) fn state(&self) -> MutexGuard<'_, OpenLogState> {
        hold(&self.0)
    }
}

/// The guarded data is consistent between any two statements, so a poisoned lock can be used.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
