//! The thread that writes events.
//!
//! It takes all queued events, chains them and hands them to the kernel with one call. If that
//! fails, the file is truncated to its last complete event, the events stay queued, and it retries
//! until there is space.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, fallocate};

use crate::chain::Link;
use crate::event::{Event, EventName, Who};
use crate::figures::{Step, Timing};
use crate::keeper::Note;
use crate::ledger::{Part, Shared};
use crate::queue::Waiting;
use crate::segment::{Header, SegmentId};

/// Disk space is preallocated in steps of this size, and a part of it is always left: it is
/// available even if others have filled the disk, so kills and reads can still be recorded.
const ROOM_STEP_BYTES: u64 = 2 << 20;
const ROOM_LEFT_BYTES: u64 = 1 << 20;

/// The segment that is being written.
pub(crate) struct Current {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<File>,
    /// The length of its complete lines.
    pub(crate) length: u64,
    /// The length that is allocated on disk.
    pub(crate) room: u64,
    /// Whether a partial event may follow the complete lines.
    pub(crate) is_torn: bool,
    pub(crate) begun_unix_ms: u64,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keeper: SyncSender<Note>,
    pub(crate) last: Link,
    /// `None` if the next event starts a segment.
    pub(crate) current: Option<Current>,
}

impl Writer {
    /// Writes until the queue is closed and empty, or cannot be emptied any more.
    pub(crate) fn run(mut self) {
        while let Some((events, left_out)) = self.shared.queue.take() {
            match self.write(&events, left_out) {
                Ok(()) => {
                    self.shared.set_failure(Part::Write, None);
                    for event in events {
                        let tally = &self.shared.tally;
                        tally.observe(Timing::Written(event.since.elapsed()));
                        // The receiver may be gone.
                        let _ = event.written.send(());
                    }
                }
                Err(error) => {
                    self.shared.tally.failed(Step::Write);
                    self.shared.set_failure(Part::Write, Some(&error));
                    self.shared.queue.put_back(events, left_out);
                    if self.shared.queue.pause() {
                        tracing::error!("the audit log ends without its last events");
                        return;
                    }
                }
            }
        }
    }

    fn write(&mut self, events: &VecDeque<Waiting>, left_out: u64) -> io::Result<()> {
        let before = self.last;
        let now = unix_ms();
        let gap = (left_out > 0).then(|| gap(left_out, now));
        let fields = events.iter().map(|event| &event.fields).chain(&gap);
        let mut lines = Vec::with_capacity(512 * events.len());
        let mut last = before;
        for fields in fields {
            last = last.append(fields.as_bytes(), &mut lines);
        }
        let current = current(&mut self.current, &self.shared, before, now)?;
        current.write(&lines)?;
        let wrote = (last.seq - before.seq, lines.len() as u64);
        self.shared.tally.wrote(wrote, left_out, last.seq);
        self.last = last;
        self.tell_keeper(now);
        Ok(())
    }

    /// Notifies the keeper to sync the segment, and to seal it if it is large or old enough.
    fn tell_keeper(&mut self, now: u64) {
        let Some(current) = &self.current else { return };
        let settings = &self.shared.settings;
        let age_max = u64::try_from(settings.segment_age.as_millis()).unwrap_or(u64::MAX);
        let is_full = current.length >= settings.segment_bytes;
        let is_old = now.saturating_sub(current.begun_unix_ms) >= age_max;
        let id = current.id;
        self.shared.written(self.last, &current.file, id);
        if is_full || is_old {
            self.current = None;
            // The queue is long enough; a keeper that is blocked by a slow disk is waited for.
            let _ = self.keeper.send(Note::Seal(id));
        } else if !self.shared.is_keeper_told() {
            let _ = self.keeper.try_send(Note::Written);
        }
    }
}

impl Current {
    /// Writes all lines or none: a partial write is truncated before the next attempt.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
        }
        self.take_room();
        self.is_torn = true;
        if let Err(error) = (&*self.file).write_all(lines) {
            self.is_torn = self.file.set_len(self.length).is_err();
            self.room = self.length;
            return Err(error);
        }
        self.is_torn = false;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Preallocates space. A failure is not an error yet.
    fn take_room(&mut self) {
        if self.length + ROOM_LEFT_BYTES > self.room {
            let taken = fallocate(
                &*self.file,
                FallocateFlags::KEEP_SIZE,
                self.length,
                ROOM_STEP_BYTES,
            );
            if taken.is_ok() {
                self.room = self.length + ROOM_STEP_BYTES;
            }
        }
    }

    /// Whether the file still has a name: data written to a deleted file is lost.
    fn is_there(&self) -> bool {
        let is_there = self.file.metadata().is_ok_and(|found| found.nlink() > 0);
        if !is_there {
            tracing::error!("a segment of the audit log was deleted while it was written");
        }
        is_there
    }
}

/// The segment to write to, created if needed.
fn current<'a>(
    current: &'a mut Option<Current>,
    shared: &Shared,
    before: Link,
    now: u64,
) -> io::Result<&'a mut Current> {
    let segment = match current.take().filter(Current::is_there) {
        Some(segment) => segment,
        None => begin(shared, before, now)?,
    };
    Ok(current.insert(segment))
}

fn begin(shared: &Shared, before: Link, unix_ms: u64) -> io::Result<Current> {
    let id = SegmentId(before.seq + 1);
    let directory = &shared.settings.directory;
    let path = id.open_path(directory);
    // An existing file of this name was left by a failed attempt: it has no events.
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)?;
    file.set_len(0)?;
    let header = Header { before, unix_ms }.line();
    (&file).write_all(header.as_bytes())?;
    Ok(Current {
        id,
        file: Arc::new(file),
        length: header.len() as u64,
        room: 0,
        is_torn: false,
        begun_unix_ms: unix_ms,
    })
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The event that reports dropped events.
fn gap(left_out: u64, unix_ms: u64) -> String {
    let mut event = Event::new(EventName::LedgerGap, unix_ms, Who::Server, "ledger");
    event.arguments.number("events_left_out", left_out);
    event.outcome = crate::Outcome::Failed;
    event.fields()
}
