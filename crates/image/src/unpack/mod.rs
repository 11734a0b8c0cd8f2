//! Unpacking a layer: untrusted from the first byte.
//!
//! ```text
//! file ─▶ decompress ─▶ hash ─▶ pieces │ ▶ members ─▶ tree beneath one directory
//!              a thread of its own     │
//! ```
//!
//! Every member's directory is resolved by openat2 beneath the layer's own directory and
//! without following any link, so nothing ever appears outside of it. What a member may
//! not bring is left out (devices, set-user-id bits, extended attributes) or makes the
//! whole layer invalid (`..`, links for directories, sparse files).

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

/// The attribute by which overlayfs, mounted in a user namespace, knows that a directory
/// hides all of its name below.
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

/// What comes of reading the archive, as opposed to writing the tree.
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

/// How to unpack.
pub(crate) struct Unpack<'a> {
    pub(crate) bounds: &'a Bounds,
    /// Shared with the other layers of the image.
    pub(crate) budget: &'a Budget,
    /// Set when nobody wants the result any more.
    pub(crate) stop: &'a AtomicBool,
    /// Told how many bytes of content were written so far.
    pub(crate) report: &'a (dyn Fn(u64) + Sync),
}

impl Unpack<'_> {
    /// Unpacks a layer, compressed or not, into an empty directory and answers what the
    /// archive was, decompressed. On `Err` the directory holds whatever was unpacked.
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

/// Reads what follows the archive's end: it belongs to the digest.
fn drain(rest: impl Read) -> Result<(), UnpackError> {
    let mut rest = rest.take(TRAILER_BYTES_MAX + 1);
    if io::copy(&mut rest, &mut io::sink())? > TRAILER_BYTES_MAX {
        return Err(UnpackError::Malformed("too much follows its end"));
    }
    Ok(())
}

/// Unpacks an archive in memory, for tests and fuzzing.
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
