//! What can go wrong with an image, sorted by what the reader can do about it.

use std::io;

use hotcell_domain::{Digest, PolicyError, Reference};

/// Why an image could not be had. Nothing half made is visible afterwards; what was
/// fetched of a layer is kept for the next try, or until `gc`.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The registry does not have it.
    #[error("{reference} does not exist in its registry, or needs credentials to be seen")]
    NotFound {
        /// What was asked for.
        reference: Reference,
    },
    /// It is not in the store.
    #[error("{reference} is not on this host")]
    NotHere {
        /// What was asked for.
        reference: Reference,
    },
    /// Policy does not allow it.
    #[error(transparent)]
    Refused(#[from] PolicyError),
    /// The registry wants other credentials, or any.
    #[error("registry {registry} denies access to {repository}")]
    Denied {
        /// Which registry.
        registry: String,
        /// To what.
        repository: String,
    },
    /// The registry cannot be reached, or says nothing for too long.
    #[error("registry {registry} cannot be reached: {reason}")]
    Unreachable {
        /// Which registry.
        registry: String,
        /// How that showed itself.
        reason: String,
    },
    /// The registry sends a byte now and then.
    #[error("registry {registry} is too slow: {reason}")]
    TooSlow {
        /// Which registry.
        registry: String,
        /// How slow.
        reason: String,
    },
    /// The registry answers with an error.
    #[error("registry {registry} answers with status {status}")]
    Status {
        /// Which registry.
        registry: String,
        /// Its answer.
        status: u16,
    },
    /// Content is not what its digest says.
    #[error("{what} should be {expected} but is {found}")]
    WrongDigest {
        /// Which content.
        what: &'static str,
        /// What it should be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// Content is not what it should be in some other way.
    #[error("{what} is not valid: {reason}")]
    Invalid {
        /// Which content.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Something is larger than its bound.
    #[error("{what} is larger than {max}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its bound.
        max: u64,
    },
    /// There is no such image for this host.
    #[error("{reference} has nothing for {wanted}, only for {found}")]
    Platform {
        /// Which image.
        reference: String,
        /// What this host is.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// The credentials cannot be had.
    #[error("credentials for {registry} cannot be read: {reason}")]
    Credentials {
        /// Which registry.
        registry: String,
        /// Why.
        reason: String,
    },
    /// A container uses it.
    #[error("{reference} is used by a container")]
    InUse {
        /// Which image.
        reference: Reference,
    },
    /// Images are being fetched or used; what removes must wait.
    #[error("the image store is in use; try again when nothing is pulled or started")]
    Busy,
    /// Whoever asked for it has gone.
    #[error("cancelled")]
    Cancelled,
    /// The disk would not take or give it.
    #[error("could not {step}")]
    Disk {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl ImageError {
    /// Wraps what the disk said, for `map_err`.
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

    /// Whether the next try may do better.
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
