//! Metrics of the ledger.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters since the start, and current values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerFigures {
    /// Events written.
    pub events: u64,
    /// Bytes of these events.
    pub bytes: u64,
    /// Events dropped because the queue was full.
    pub left_out: u64,
    /// Segments compressed.
    pub sealed_segments: u64,
    /// Failed steps, by name.
    pub failures: [(&'static str, u64); Step::ALL.len()],
    /// Events waiting to be written.
    pub queued: u64,
    /// Events that are written but not yet covered by the anchor.
    pub unanchored: u64,
    /// Whether events cannot be written now.
    pub is_failing: bool,
}

/// A measured duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// From recording an event until it was handed to the kernel.
    Written(Duration),
    /// A sync to disk.
    Synced(Duration),
}

/// Steps that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Write,
    Sync,
    Anchor,
    Seal,
}

impl Step {
    const ALL: [Self; 4] = [Self::Write, Self::Sync, Self::Anchor, Self::Seal];

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Anchor => "anchor",
            Self::Seal => "seal",
        }
    }
}

impl Default for LedgerFigures {
    fn default() -> Self {
        Self {
            events: 0,
            bytes: 0,
            left_out: 0,
            sealed_segments: 0,
            failures: Step::ALL.map(|step| (step.name(), 0)),
            queued: 0,
            unanchored: 0,
            is_failing: false,
        }
    }
}

#[derive(Default)]
pub(crate) struct Tally {
    events: AtomicU64,
    bytes: AtomicU64,
    left_out: AtomicU64,
    sealed_segments: AtomicU64,
    failures: [AtomicU64; Step::ALL.len()],
    /// Sequence numbers of events.
    written: AtomicU64,
    anchored: AtomicU64,
    observer: OnceLock<Box<dyn Fn(Timing) + Send + Sync>>,
}

impl Tally {
    /// Sets the sequence numbers that the chain had at the start.
    pub(crate) fn resume(&self, written: u64, anchored: u64) {
        self.written.store(written, Ordering::Relaxed);
        self.anchored.store(anchored, Ordering::Relaxed);
    }

    pub(crate) fn set_observer(&self, observer: Box<dyn Fn(Timing) + Send + Sync>) {
        let _ = self.observer.set(observer);
    }

    pub(crate) fn observe(&self, timing: Timing) {
        if let Some(observer) = self.observer.get() {
            observer(timing);
        }
    }

    pub(crate) fn wrote(&self, (events, bytes): (u64, u64), left_out: u64, last: u64) {
        self.events.fetch_add(events, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.left_out.fetch_add(left_out, Ordering::Relaxed);
        self.written.store(last, Ordering::Relaxed);
    }

    pub(crate) fn anchored(&self, last: u64) {
        self.anchored.store(last, Ordering::Relaxed);
    }

    pub(crate) fn sealed(&self) {
        self.sealed_segments.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, step: Step) {
        self.failures[step as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> LedgerFigures {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LedgerFigures {
            events: now(&self.events),
            bytes: now(&self.bytes),
            left_out: now(&self.left_out),
            sealed_segments: now(&self.sealed_segments),
            failures: Step::ALL.map(|step| (step.name(), now(&self.failures[step as usize]))),
            unanchored: now(&self.written).saturating_sub(now(&self.anchored)),
            ..LedgerFigures::default()
        }
    }
}
