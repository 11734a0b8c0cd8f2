//! Removing what was forgotten from SQLite's log.
//!
//! A value that is set to NULL is overwritten in the database, but the page that it was on
//! stays in the write-ahead log, for as long as nothing overwrites it there. So soon
//! afterwards the log is moved into the database and cut to nothing, by a thread and a
//! connection of their own: nearly all of that is waiting for the disk while others write.
//! What was forgotten shortly before a crash is removed when the database is opened again.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// At most this often; all that is forgotten meanwhile goes together.
const SCRUB_INTERVAL: Duration = Duration::from_secs(1);

/// The thread. Dropped, it is waited for.
pub(super) struct Scrubber {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scrubber {
    /// Scrubs once, and then whenever it is woken.
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

    /// Has what was forgotten by now, in transactions that have ended, removed soon.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake {
            // Full means that it will be.
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
            // Whoever wakes us now has ended its transaction before we begin.
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(gone @ RecvTimeoutError::Disconnected) => return Err(gone),
        }
    }
}

/// Returns whether nothing is left in the log.
fn scrub(connection: &Connection) -> rusqlite::Result<bool> {
    // The first waits for the disk and holds nobody up. The second has next to nothing left
    // to move, so that writers wait for it no longer than they must.
    let is_busy = |sql| connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    is_busy("PRAGMA wal_checkpoint(PASSIVE)")?;
    Ok(!is_busy("PRAGMA wal_checkpoint(TRUNCATE)")?)
}
