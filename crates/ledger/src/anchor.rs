//! How far the chain was, noted where the ledger's files are not.
//!
//! It is noted after the events are on the disk, so it may lag behind the files but never lead
//! them: a ledger that ends before its anchor has lost its end.

use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::Link;

/// How far the chain was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The last event that is certainly on the disk.
    pub last: Link,
    /// The first event that retention has left. What is missing before it was removed by us.
    pub first_kept: u64,
}

/// Why an anchor is not noted or not known.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AnchorError(pub String);

/// Where the anchor is noted. Called by a thread that may wait.
pub trait AnchorStore: Send + Sync + 'static {
    /// The anchor; `None` if none was ever noted.
    fn load(&self) -> Result<Option<Anchor>, AnchorError>;
    /// Notes it. It survives the death of this process.
    fn save(&self, anchor: Anchor) -> Result<(), AnchorError>;
}

/// An anchor for tests and benchmarks, gone with its process. Clones share it.
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
