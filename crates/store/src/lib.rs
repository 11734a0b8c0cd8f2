//! Persistent state: containers, warm containers, attachments and execs in SQLite, and the output
//! of execs in append-only logs beside it.
//!
//! One thread owns the database and runs queries from a bounded queue. Once a method has returned
//! `Ok`, its effect survives the death of this process, and a power cut once [`Store::sync`] has
//! returned.
//!
//! ```text
//! STATE/server.lock         locked by the server; contains its process id
//! STATE/hotcell.db          with SQLite's -wal and -shm files
//! STATE/logs/e_….head       the first half of an exec's output
//! STATE/logs/e_….tailN      the last half, in segments
//! ```

#![forbid(unsafe_code)]

mod attachment;
mod call;
mod check;
mod container;
mod database;
mod database_thread;
mod error;
mod exec;
mod ledger_anchor;
mod lock;
mod log;
mod memory;
mod page;
mod prune;
mod row;
#[cfg(test)]
mod samples;
mod warm;

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use attachment::AttachmentRow;
pub use call::{CallInsert, CallOutcome, CallRow};
pub use check::{
    ContainerState, SCHEMA, StoreCheck, StoreFault, StoreFaultKind, check, copy_database,
    copy_logs, is_log_name,
};
pub use container::{ContainerInsert, ContainerRow};
pub use error::{OpenError, StoreError};
pub use exec::{ARGV_BYTES_KEPT, EndedExecRow, ExecInsert, ExecRow, listed_argv};
pub use ledger_anchor::{LedgerAnchorRow, read_ledger_anchor};
pub use log::{LogMessage, LogPage, LogPiece, LogWriter};
pub use memory::{MemoryLimit, MemoryRow, MemorySave, MemorySaved};
pub use page::PageCursor;
pub use prune::Retention;
pub use warm::WarmRow;

use database_thread::DatabaseThread;
use lock::StateLock;
use log::Logs;

/// The store. Clones share it.
#[derive(Clone)]
pub struct Store {
    // Dropped in this order: the lock, which the logs hold too, is released last.
    database: Arc<DatabaseThread>,
    logs: Arc<Logs>,
    directory: Arc<Path>,
    is_in_memory: bool,
}

impl Store {
    /// Opens the store in a state directory, creating or migrating it as needed, and locks it: no
    /// other process can open it until the last clone and the last log writer are dropped.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let failed = |step| move |source| OpenError::io(step, directory, source);
        private_directory(directory).map_err(failed("make the state directory"))?;
        let lock = StateLock::take(directory)?;
        let logs = directory.join("logs");
        private_directory(&logs).map_err(failed("make the directory of logs"))?;
        let database = database::open(directory)?;
        let database_thread = DatabaseThread::start(database).map_err(failed("start a thread"))?;
        Ok(Self {
            database: Arc::new(database_thread),
            logs: Arc::new(Logs::new(logs, Some(lock))),
            directory: directory.into(),
            is_in_memory: false,
        })
    }

    /// A store for this process only, with its rows in memory. `directory` must exist; it holds the
    /// logs and is not locked, because exec ids are unique anyway.
    pub fn in_memory(directory: &Path) -> Result<Self, OpenError> {
        let database = database::in_memory(directory)?;
        Ok(Self {
            database: Arc::new(DatabaseThread::in_memory(database)),
            logs: Arc::new(Logs::new(directory.to_owned(), None)),
            directory: directory.into(),
            is_in_memory: true,
        })
    }

    /// Syncs all rows stored so far to disk, so that a power cut does not undo them. Other queries
    /// are answered meanwhile.
    pub async fn sync(&self) -> Result<(), StoreError> {
        if self.is_in_memory {
            return Ok(());
        }
        let step = "bring rows to the disk";
        let directory = Arc::clone(&self.directory);
        let sync = move || database::sync(&directory);
        blocking(step, move || {
            sync().map_err(|error| StoreError::io(step, error))
        })
        .await
    }
}

impl Store {
    /// Returns once the database thread has answered, which shows that the process is not stuck.
    pub async fn responds(&self) -> Result<(), StoreError> {
        self.database.run("answer", |_| Ok(())).await
    }
}

/// Free and total space of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// What an ordinary user can still write.
    pub free_bytes: u64,
    /// The size of the filesystem.
    pub total_bytes: u64,
}

impl Store {
    /// The disk of the state directory.
    pub fn disk(&self) -> std::io::Result<Disk> {
        let found = rustix::fs::statvfs(&*self.directory)?;
        Ok(Disk {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }
}

impl Store {
    /// Calls `observer` with the duration of each transaction. The first observer stays.
    pub fn observe_transactions(&self, observer: impl Fn(Duration) + Send + Sync + 'static) {
        self.database.meter().set_observer(observer);
    }

    /// Calls `observer` with the name of each query and the time of its request, in the task that
    /// made it. The first observer stays.
    pub fn observe_queries(
        &self,
        observer: impl Fn(&'static str, Instant) + Send + Sync + 'static,
    ) {
        self.database.meter().set_query_observer(observer);
    }

    /// Queries that wait for the database.
    pub fn queue_depth(&self) -> usize {
        self.database.meter().queued()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// Runs blocking disk work off the async workers. Work that has begun continues if this future is
/// dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    step: &'static str,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| StoreError::failed(step, error))?
}

/// Creates a directory with mode 0700; leaves an existing one unchanged.
fn private_directory(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

#[cfg(test)]
mod tests;
