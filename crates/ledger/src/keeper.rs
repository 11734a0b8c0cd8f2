//! The keeper thread, which waits for the disk: syncs, stores the anchor, compresses and removes
//! segments.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::anchor::{Anchor, AnchorStore};
use crate::chain::Link;
use crate::figures::{Step, Timing};
use crate::ledger::{Part, Shared};
use crate::retention;
use crate::seal::seal;
use crate::segment::SegmentId;

/// The longest time between write and sync of an event: a power cut can lose this much.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// The longest time between the sync of an event and the next anchor.
const ANCHOR_INTERVAL: Duration = Duration::from_secs(1);

/// How often old segments are removed, and failed compressions retried.
const TIDY_INTERVAL: Duration = Duration::from_mins(1);

/// Messages queued for this thread.
pub(crate) const NOTES_MAX: usize = 64;

/// A message from the writer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Note {
    /// There are events to sync.
    Written,
    /// This segment is complete and can be sealed.
    Seal(SegmentId),
}

/// The position of the last written event.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) last: Link,
    pub(crate) file: Arc<File>,
    pub(crate) id: SegmentId,
}

pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) anchor: Box<dyn AnchorStore>,
    pub(crate) anchored: Option<Anchor>,
    pub(crate) first_kept: u64,
    /// Segments waiting to be sealed.
    pub(crate) unsealed: VecDeque<SegmentId>,
    /// The file that was synced last: for a new one, the directory is synced, too.
    pub(crate) synced: Option<(SegmentId, u64)>,
}

impl Keeper {
    /// Runs until the writer is gone.
    pub(crate) fn run(mut self, notes: &Receiver<Note>) {
        let (mut anchor_at, mut tidy_at) = (Instant::now(), Instant::now());
        loop {
            let wait = if self.is_anchored() {
                tidy_at
            } else {
                anchor_at
            };
            let wait = wait.saturating_duration_since(Instant::now());
            let is_over = self.gather(notes, wait.max(SYNC_INTERVAL));
            let synced = self.sync();
            if is_over || Instant::now() >= anchor_at {
                self.note_anchor(synced);
                anchor_at = Instant::now() + ANCHOR_INTERVAL;
            }
            if is_over {
                return;
            }
            if !self.unsealed.is_empty() || Instant::now() >= tidy_at {
                self.tidy();
                tidy_at = Instant::now() + TIDY_INTERVAL;
            }
        }
    }

    /// Waits for a message, and for further ones that can share the same sync. Returns whether the
    /// writer is gone.
    fn gather(&mut self, notes: &Receiver<Note>, wait: Duration) -> bool {
        let mut until = Instant::now() + wait;
        let mut is_first = true;
        loop {
            match notes.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Note::Seal(id)) => self.unsealed.push_back(id),
                Ok(Note::Written) => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
            if std::mem::take(&mut is_first) {
                until = Instant::now() + SYNC_INTERVAL;
            }
        }
    }

    fn is_anchored(&self) -> bool {
        let last = self.shared.position().map(|position| position.last);
        last == self.anchored.map(|anchor| anchor.last) || last.is_none()
    }

    /// Syncs what was written; returns the last event that is on disk.
    fn sync(&mut self) -> Option<Link> {
        let position = self.shared.take_position()?;
        let now = (position.id, position.last.seq);
        if self.synced == Some(now) {
            return Some(position.last);
        }
        let is_new = self.synced.is_none_or(|(id, _)| id != position.id);
        let began = Instant::now();
        match self.sync_all(&position, is_new) {
            Ok(()) => {
                let tally = &self.shared.tally;
                tally.observe(Timing::Synced(began.elapsed()));
                self.shared.set_failure(Part::Sync, None);
                self.synced = Some(now);
                Some(position.last)
            }
            Err(error) => {
                self.shared.tally.failed(Step::Sync);
                self.shared.set_failure(Part::Sync, Some(&error));
                None
            }
        }
    }

    fn sync_all(&self, position: &Position, is_new: bool) -> io::Result<()> {
        position.file.sync_data()?;
        if is_new {
            // The previous segment may have been completed since the last sync.
            for id in &self.unsealed {
                match File::open(id.open_path(&self.shared.settings.directory)) {
                    Ok(file) => file.sync_data()?,
                    // Removed by someone else: `verify` reports that.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            File::open(&self.shared.settings.directory)?.sync_all()?;
        }
        Ok(())
    }

    fn note_anchor(&mut self, synced: Option<Link>) {
        let Some(last) = synced else { return };
        let anchor = Anchor {
            last,
            first_kept: self.first_kept,
        };
        if self.anchored == Some(anchor) {
            return;
        }
        match self.anchor.save(anchor) {
            Ok(()) => {
                self.shared.tally.anchored(last.seq);
                self.anchored = Some(anchor);
            }
            Err(error) => {
                self.shared.tally.failed(Step::Anchor);
                tracing::warn!(%error, "how far the audit log is was not noted");
            }
        }
    }

    /// Seals complete segments, then removes excess ones.
    fn tidy(&mut self) {
        let directory = self.shared.settings.directory.clone();
        while let Some(id) = self.unsealed.front().copied() {
            if let Err(error) = seal(&directory, id) {
                self.shared.tally.failed(Step::Seal);
                tracing::warn!(%error, "a segment of the audit log was not compressed yet");
                break;
            }
            self.shared.tally.sealed();
            self.unsealed.pop_front();
        }
        if let Err(error) = self.remove_excess() {
            tracing::warn!(%error, "old segments of the audit log were not removed yet");
        }
    }

    /// The anchor is stored first, so that `verify` knows that retention removed the segments.
    fn remove_excess(&mut self) -> io::Result<()> {
        let Some(position) = self.shared.position() else {
            return Ok(());
        };
        let (excess, first_kept) = retention::excess(&self.shared.settings, position.id)?;
        if excess.is_empty() {
            return Ok(());
        }
        self.first_kept = first_kept;
        let synced = self.sync();
        self.note_anchor(synced);
        if self
            .anchored
            .is_none_or(|anchor| anchor.first_kept != first_kept)
        {
            return Ok(());
        }
        for id in excess {
            retention::remove(&self.shared.settings.directory, id)?;
        }
        tracing::info!(first_kept, "removed old segments of the audit log");
        Ok(())
    }
}
