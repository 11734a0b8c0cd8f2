//! Image errors, grouped by what the reader can do about them.

use std::io;

use hotcell_domain::{Digest, PolicyError, Reference};

/// Why an image is not available. Nothing half-finished is visible afterwards; a partial download
/// of a layer is kept for the next pull, or until `gc`.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The registry does not have it.
    #[error("{reference} does not exist in its registry, or needs credentials to be seen")]
    NotFound {
        /// The requested image.
        reference: Reference,
    },
    /// It is not in the store.
    #[error("{reference} is not on this host")]
    NotHere {
        /// The requested image.
        reference: Reference,
    },
    /// Policy does not allow it.
    #[error(transparent)]
    Refused(#[from] PolicyError),
    /// The registry requires other credentials, or any.
    #[error("registry {registry} denies access to {repository}")]
    Denied {
        /// The registry's host.
        registry: String,
        /// The repository on it.
        repository: String,
    },
    /// The registry cannot be reached, or does not answer in time.
    #[error("registry {registry} cannot be reached: {reason}")]
    Unreachable {
        /// The registry's host.
        registry: String,
        /// The cause, for the log and the user.
        reason: String,
    },
    /// The registry sends, but too slowly.
    #[error("registry {registry} is too slow: {reason}")]
    TooSlow {
        /// The registry's host.
        registry: String,
        /// The measured rate.
        reason: String,
    },
    /// The registry answers with an error.
    #[error("registry {registry} answers with status {status}")]
    Status {
        /// The registry's host.
        registry: String,
        /// The HTTP status.
        status: u16,
    },
    /// Content does not match its digest.
    #[error("{what} should be {expected} but is {found}")]
    WrongDigest {
        /// The kind of content.
        what: &'static str,
        /// The digest that was asked for.
        expected: Digest,
        /// The digest of what arrived.
        found: Digest,
    },
    /// Content is invalid in some other way.
    #[error("{what} is not valid: {reason}")]
    Invalid {
        /// The kind of content.
        what: &'static str,
        /// The defect.
        reason: String,
    },
    /// A bound is exceeded.
    #[error("{what} is larger than {max}")]
    TooLarge {
        /// The kind of content.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// The image does not support this host's platform.
    #[error("{reference} has nothing for {wanted}, only for {found}")]
    Platform {
        /// The requested image.
        reference: String,
        /// This host's platform.
        wanted: String,
        /// The platforms of the image.
        found: String,
    },
    /// The credentials cannot be read.
    #[error("credentials for {registry} cannot be read: {reason}")]
    Credentials {
        /// The registry's host.
        registry: String,
        /// The cause.
        reason: String,
    },
    /// A container uses it.
    #[error("{reference} is used by a container")]
    InUse {
        /// The image that is in use.
        reference: Reference,
    },
    /// The store is locked by pulls or starting containers.
    #[error("the image store is in use; try again when nothing is pulled or started")]
    Busy,
    /// The caller has gone away.
    #[error("cancelled")]
    Cancelled,
    /// A file operation failed.
    #[error("could not {step}")]
    Disk {
        /// Completes "could not …".
        step: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

impl ImageError {
    /// Converts an I/O error, for `map_err`.
    pub(crate) fn disk<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Disk {
            step,
            source: source.into(),
        }
    }

    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            what,
            reason: reason.into(),
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            Self::NotFound { .. }
            | Self::TooSlow { .. }
            | Self::NotHere { .. }
            | Self::Refused(_)
            | Self::Denied { .. }
            | Self::WrongDigest { .. }
            | Self::Invalid { .. }
            | Self::TooLarge { .. }
            | Self::Platform { .. }
            | Self::Credentials { .. }
            | Self::InUse { .. }
            | Self::Busy
            | Self::Cancelled
            | Self::Disk { .. } => false,
        }
    }
}
