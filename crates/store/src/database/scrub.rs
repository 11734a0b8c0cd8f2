//! Removes deleted secrets from SQLite's write-ahead log.
//!
//! A value that is set to NULL is overwritten in the database, but its old page stays in the
//! write-ahead log until something overwrites it there. So the log is soon checkpointed and
//! truncated, by a separate thread and connection: nearly all of that is waiting for the disk,
//! while others write. Secrets deleted shortly before a crash are removed when the database is
//! opened again.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// The shortest interval between two runs.
const SCRUB_INTERVAL: Duration = Duration::from_secs(1);

/// The thread. Dropping this waits for it.
pub(super) struct Scrubber {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scrubber {
    /// Runs once, and then whenever it is woken.
    pub(super) fn start(connection: Connection) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("hotcell-scrub".to_owned())
            .spawn(move || scrub_all(&connection, &woken))?;
        let this = Self {
            wake: Some(wake),
            thread: Some(thread),
        };
        this.wake();
        Ok(this)
    }

    /// Schedules a run for everything deleted in transactions that have ended.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake {
            // A full channel means that a run is already scheduled.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn scrub_all(connection: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        loop {
            if pause(woken).is_err() {
                // Closing the database removes the log.
                return;
            }
            match scrub(connection) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "could not remove forgotten values from the database's log");
                }
            }
        }
    }
}

/// Waits for an interval, or until the scrubber is dropped.
fn pause(woken: &Receiver<()>) -> Result<(), RecvTimeoutError> {
    let until = Instant::now() + SCRUB_INTERVAL;
    loop {
        match woken.recv_timeout(until.saturating_duration_since(Instant::now())) {
            // A transaction that wakes us now has ended before the next run begins.
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(gone @ RecvTimeoutError::Disconnected) => return Err(gone),
        }
    }
}

/// Returns whether the log is empty.
fn scrub(connection: &Connection) -> rusqlite::Result<bool> {
    // The first checkpoint waits for the disk without blocking writers. The second one then has
    // almost nothing left to move, so writers wait only briefly.
    let is_busy = |sql| connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    is_busy("PRAGMA wal_checkpoint(PASSIVE)")?;
    Ok(!is_busy("PRAGMA wal_checkpoint(TRUNCATE)")?)
}
