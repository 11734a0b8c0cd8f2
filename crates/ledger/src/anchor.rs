//! The anchor: how far the hash chain was, stored outside of the ledger's files.
//!
//! It is stored after the events are on disk, so it may lag behind the files but is never ahead of
//! them: a ledger that ends before its anchor was truncated.

use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::Link;

/// A known position of the hash chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The last event that is known to be on disk.
    pub last: Link,
    /// The first event that retention has kept. Retention removed everything before it.
    pub first_kept: u64,
}

/// Why the anchor could not be stored or read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AnchorError(pub String);

/// Stores the anchor. Called by a thread that may block.
pub trait AnchorStore: Send + Sync + 'static {
    /// Reads the anchor; `None` if none was ever stored.
    fn load(&self) -> Result<Option<Anchor>, AnchorError>;
    /// Stores the anchor. It survives the death of this process.
    fn save(&self, anchor: Anchor) -> Result<(), AnchorError>;
}

/// An anchor in memory, for tests and benchmarks. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryAnchor(Arc<Mutex<Option<Anchor>>>);

impl AnchorStore for MemoryAnchor {
    fn load(&self) -> Result<Option<Anchor>, AnchorError> {
        Ok(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn save(&self, anchor: Anchor) -> Result<(), AnchorError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(anchor);
        Ok(())
    }
}
