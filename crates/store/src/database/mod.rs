//! The database: how it is opened, and what every query may do with it.

mod fault;
mod open;
mod schema;
mod scrub;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Savepoint};
use rustix::fs::Stat;

pub(crate) use fault::{Fault, FaultReport};
pub(crate) use open::{in_memory, open, sync};
use scrub::Scrubber;

const FILE_NAME: &str = "hotcell.db";

/// The one connection.
pub(crate) struct Database {
    // Dropped before the connection, which is the last to close and removes the log. What is
    // in memory has none.
    scrubber: Option<Scrubber>,
    has_forgotten: bool,
    connection: Connection,
    /// None for what is in memory.
    files: Vec<FileIdentity>,
}

/// A file by its name, and what the name meant when we opened it.
struct FileIdentity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Database {
    /// For queries that change nothing.
    pub(crate) fn read(&self) -> &Connection {
        &self.connection
    }

    /// Begins to change something. Nothing is changed before `commit`.
    pub(crate) fn write(&mut self) -> Result<Savepoint<'_>, Fault> {
        Ok(self.connection.savepoint()?)
    }

    /// Begins a transaction for several queries.
    pub(crate) fn begin(&self) -> Result<(), Fault> {
        self.run("BEGIN IMMEDIATE")
    }

    /// Sees that the transaction was not undone: SQLite does so when the disk is full.
    pub(crate) fn still_begun(&self) -> Result<(), Fault> {
        if self.connection.is_autocommit() {
            return Err(Fault::Undone);
        }
        Ok(())
    }

    /// Keeps what several queries changed.
    pub(crate) fn commit(&self) -> Result<(), Fault> {
        self.run("COMMIT")
    }

    fn run(&self, sql: &str) -> Result<(), Fault> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Sees that the files are still those we opened. SQLite would go on writing to a
    /// deleted file, and all of it would be gone at the next start.
    pub(crate) fn present(&self) -> Result<(), Fault> {
        for file in &self.files {
            let found = rustix::fs::stat(&file.path);
            if !found.is_ok_and(|found| file.is(&found)) {
                return Err(Fault::Gone(file.path.clone()));
            }
        }
        Ok(())
    }

    /// Ends a transaction that a failed query left open.
    pub(crate) fn settle(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be undone");
        }
    }

    /// Notes that a query forgot something that may be secret.
    pub(crate) fn note_forgotten(&mut self) {
        self.has_forgotten = true;
    }

    /// Has what was forgotten removed from the log too. Nobody waits for it.
    pub(crate) fn scrub_soon(&mut self) {
        if std::mem::take(&mut self.has_forgotten)
            && let Some(scrubber) = &self.scrubber
        {
            scrubber.wake();
        }
    }

    /// What callers are told.
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
