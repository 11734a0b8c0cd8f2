//! What a layer takes, counted against its bounds as soon as it is announced.

use std::cell::Cell;

use super::UnpackError;
use crate::bounds::Bounds;

/// Counts for one layer.
pub(crate) struct Meter {
    entries: Count,
    bytes: Count,
}

impl Meter {
    pub(crate) fn of_layer(bounds: &Bounds) -> Self {
        Self {
            entries: Count::new("the number of files in a layer", bounds.entries_max),
            bytes: Count::new("the content of a layer", bounds.unpacked_bytes_max),
        }
    }

    /// One more file, or a directory that a path only implies.
    pub(super) fn entry(&self) -> Result<(), UnpackError> {
        self.entries.add(1)
    }

    /// So many more bytes.
    pub(super) fn bytes(&self, len: u64) -> Result<(), UnpackError> {
        self.bytes.add(len)
    }
}

struct Count {
    what: &'static str,
    max: u64,
    now: Cell<u64>,
}

impl Count {
    fn new(what: &'static str, max: u64) -> Self {
        let now = Cell::new(0);
        Self { what, max, now }
    }

    fn add(&self, more: u64) -> Result<(), UnpackError> {
        self.now.set(self.now.get().saturating_add(more));
        if self.now.get() > self.max {
            let (what, max) = (self.what, self.max);
            return Err(UnpackError::TooLarge { what, max });
        }
        Ok(())
    }
}
