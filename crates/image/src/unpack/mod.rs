//! Unpacks a layer: untrusted from the first byte.
//!
//! ```text
//! file ─▶ decompress ─▶ hash ─▶ pieces │ ▶ members ─▶ tree beneath one directory
//!              a thread of its own     │
//! ```
//!
//! openat2 resolves every member's directory beneath the layer's directory without following
//! links, so nothing is ever created outside of it. Some forbidden parts are skipped (devices,
//! set-user-id bits, extended attributes); others make the whole layer invalid (`..`, links in
//! place of directories, sparse files).

mod decode;
mod directory_times;
mod header;
mod meter;
mod name;
mod pax;
mod tree;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use hotcell_domain::Digest;

pub(crate) use self::decode::decompressed;
pub(crate) use self::header::Members;
pub(crate) use self::meter::{Budget, Meter};
use self::tree::Tree;
use crate::ImageError;
use crate::bounds::{Bounds, TRAILER_BYTES_MAX};

/// The attribute that marks a directory as opaque for overlayfs in a user namespace: it hides the
/// directory of the same name in lower layers.
pub(crate) const OPAQUE: &str = "user.overlay.opaque";

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    #[error("{0}")]
    Malformed(&'static str),
    #[error("it ends too early")]
    Truncated,
    #[error("too large")]
    TooLarge { what: &'static str, max: u64 },
    #[error("could not {step}: {source}")]
    Disk {
        step: &'static str,
        source: io::Error,
    },
    #[error("stopped")]
    Stopped,
}

/// For errors of reading the archive, as opposed to writing the tree.
impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Truncated;
        }
        Self::Malformed("it cannot be decompressed")
    }
}

impl From<UnpackError> for ImageError {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Malformed(reason) => Self::invalid("a layer", reason),
            UnpackError::Truncated => Self::invalid("a layer", "it ends too early"),
            UnpackError::TooLarge { what, max } => Self::TooLarge { what, max },
            UnpackError::Disk { step, source } => Self::Disk { step, source },
            UnpackError::Stopped => Self::Cancelled,
        }
    }
}

pub(crate) struct Unpack<'a> {
    pub(crate) bounds: &'a Bounds,
    /// Shared with the other layers of the image.
    pub(crate) budget: &'a Budget,
    /// Set when the caller has gone away.
    pub(crate) stop: &'a AtomicBool,
    /// Receives the number of bytes written so far.
    pub(crate) report: &'a (dyn Fn(u64) + Sync),
}

impl Unpack<'_> {
    /// Unpacks a layer, compressed or not, into an empty directory; returns the digest of the
    /// decompressed archive. On `Err` the directory contains what was unpacked so far.
    pub(crate) fn layer(
        &self,
        blob: impl Read + Send,
        root: OwnedFd,
    ) -> Result<Digest, UnpackError> {
        decode::decoded(blob, self.stop, |archive| {
            let meter = Meter::of_layer(self.bounds, self.budget);
            let mut members = Members::new(archive, &meter);
            let mut tree = Tree::new(root, self, &meter);
            while let Some(member) = members.next()? {
                self.go_on()?;
                tree.place(&member, &mut members)?;
            }
            tree.finish()?;
            drain(members.into_inner())
        })
    }

    fn go_on(&self) -> Result<(), UnpackError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(UnpackError::Stopped);
        }
        Ok(())
    }
}

/// Reads what follows the end of the archive: it is part of the digest.
fn drain(rest: impl Read) -> Result<(), UnpackError> {
    let mut rest = rest.take(TRAILER_BYTES_MAX + 1);
    if io::copy(&mut rest, &mut io::sink())? > TRAILER_BYTES_MAX {
        return Err(UnpackError::Malformed("too much follows its end"));
    }
    Ok(())
}

/// Unpacks an archive from memory, for tests and fuzzing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn unpack_bytes(
    bytes: &[u8],
    root: OwnedFd,
    bounds: &Bounds,
) -> Result<Digest, UnpackError> {
    let unpack = Unpack {
        bounds,
        budget: &Budget::of_image(bounds),
        stop: &AtomicBool::new(false),
        report: &|_| (),
    };
    unpack.layer(bytes, root)
}

#[cfg(test)]
mod tests;
