//! The database connection and its transactions.

mod fault;
mod open;
mod schema;
mod scrub;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Savepoint};
use rustix::fs::Stat;

pub(crate) use fault::{Fault, FaultReport};
pub(crate) use open::{in_memory, is_damage, open, open_to_read, sync};
pub(crate) use schema::{KNOWN as SCHEMA_KNOWN, version as schema_version};
use scrub::Scrubber;

const FILE_NAME: &str = "hotcell.db";

pub(crate) struct Database {
    // Dropped before the connection, which must close last and removes the write-ahead log. `None`
    // for a database in memory.
    scrubber: Option<Scrubber>,
    has_forgotten: bool,
    connection: Connection,
    /// Empty for a database in memory.
    files: Vec<FileIdentity>,
}

/// A file path, and the inode it had when we opened it.
struct FileIdentity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Database {
    /// For read-only queries.
    pub(crate) fn read(&self) -> &Connection {
        &self.connection
    }

    /// Begins a savepoint. Nothing is changed before its `commit`, and before the transaction's.
    ///
    /// The transaction takes the write lock before it reads. SQLite does not let a transaction wait
    /// for that lock after it has read: while the log is scrubbed, such a query would fail at once.
    pub(crate) fn write(&mut self) -> Result<Savepoint<'_>, Fault> {
        if !self.has_begun() {
            self.begin()?;
        }
        Ok(self.connection.savepoint()?)
    }

    /// Whether there is a transaction to commit.
    pub(crate) fn has_begun(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Begins a transaction for several queries.
    pub(crate) fn begin(&self) -> Result<(), Fault> {
        self.run("BEGIN IMMEDIATE")
    }

    /// Checks that SQLite has not rolled back the transaction, as it does when the disk is full.
    pub(crate) fn still_begun(&self) -> Result<(), Fault> {
        if self.has_begun() {
            Ok(())
        } else {
            Err(Fault::Undone)
        }
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> Result<(), Fault> {
        self.run("COMMIT")
    }

    fn run(&self, sql: &str) -> Result<(), Fault> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Checks that the files have not been replaced. SQLite would keep writing to a deleted file,
    /// and everything would be lost at the next start.
    pub(crate) fn present(&self) -> Result<(), Fault> {
        for file in &self.files {
            let found = rustix::fs::stat(&file.path);
            if !found.is_ok_and(|found| file.is(&found)) {
                return Err(Fault::Gone(file.path.clone()));
            }
        }
        Ok(())
    }

    /// Rolls back a transaction that a failed query left open.
    pub(crate) fn settle(&mut self) {
        if self.has_begun()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be undone");
        }
    }

    /// Records that a query deleted something that may be secret.
    pub(crate) fn note_forgotten(&mut self) {
        self.has_forgotten = true;
    }

    /// Schedules the removal of deleted secrets from the write-ahead log. Does not wait.
    pub(crate) fn scrub_soon(&mut self) {
        if std::mem::take(&mut self.has_forgotten)
            && let Some(scrubber) = &self.scrubber
        {
            scrubber.wake();
        }
    }

    /// The error as callers see it.
    pub(crate) fn report(&self, fault: Fault) -> FaultReport {
        let directory = self.files.first().and_then(|file| file.path.parent());
        FaultReport::new(fault, directory.unwrap_or(Path::new(".")))
    }
}

impl FileIdentity {
    fn of(path: PathBuf) -> rustix::io::Result<Self> {
        let found = rustix::fs::stat(&path)?;
        Ok(Self {
            path,
            device: found.st_dev,
            inode: found.st_ino,
        })
    }

    fn is(&self, found: &Stat) -> bool {
        (self.device, self.inode) == (found.st_dev, found.st_ino)
    }
}
