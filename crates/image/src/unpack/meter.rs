//! Counts what an archive uses against its bounds, as soon as it is announced.
//!
//! Skipped content counts too, because reading it takes time. Not counted are headers and padding,
//! less than 1 KiB per entry.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::UnpackError;
use crate::bounds::{ARCHIVE_ENTRIES_MAX, Bounds};

/// The counters of one archive, shared by its reader and its writer.
pub(crate) struct Meter<'a> {
    entries: Count,
    bytes: Count,
    image: Option<&'a Budget>,
}

/// What all unpacked layers of one image may use together.
pub(crate) struct Budget {
    entries: AtomicU64,
    entries_max: u64,
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Budget {
    pub(crate) fn of_image(bounds: &Bounds) -> Self {
        Self {
            entries: AtomicU64::new(0),
            entries_max: bounds.image_entries_max,
            bytes: AtomicU64::new(0),
            bytes_max: bounds.image_unpacked_bytes_max,
        }
    }
}

impl<'a> Meter<'a> {
    pub(crate) fn of_layer(bounds: &Bounds, image: &'a Budget) -> Self {
        Self {
            image: Some(image),
            entries: Count::new("the number of files in a layer", bounds.entries_max),
            bytes: Count::new("the content of a layer", bounds.unpacked_bytes_max),
        }
    }

    /// For an image archive: a local file of known length.
    pub(crate) fn of_image_archive() -> Self {
        let what = "the number of files in an image archive";
        Self {
            image: None,
            entries: Count::new(what, ARCHIVE_ENTRIES_MAX),
            bytes: Count::new("an image archive", u64::MAX),
        }
    }

    /// Counts a header, or a directory that a path only implies.
    pub(super) fn entry(&self) -> Result<(), UnpackError> {
        self.entries.add(1)?;
        let Some(image) = self.image else {
            return Ok(());
        };
        let what = "the number of files in an image";
        spend(&image.entries, 1, what, image.entries_max)
    }

    /// Counts bytes, whether or not they are written.
    pub(super) fn bytes(&self, len: u64) -> Result<(), UnpackError> {
        self.bytes.add(len)?;
        let Some(image) = self.image else {
            return Ok(());
        };
        let what = "the content of an image";
        spend(&image.bytes, len, what, image.bytes_max)
    }
}

/// `more` is within the bound of a layer, so the sum cannot overflow.
fn spend(sum: &AtomicU64, more: u64, what: &'static str, max: u64) -> Result<(), UnpackError> {
    if sum.fetch_add(more, Ordering::Relaxed) + more > max {
        return Err(UnpackError::TooLarge { what, max });
    }
    Ok(())
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
