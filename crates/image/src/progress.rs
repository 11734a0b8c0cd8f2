//! Progress of a pull.

use std::sync::Arc;

use hotcell_domain::Digest;

/// One step of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The name was resolved; this will be fetched.
    Resolved {
        /// The manifest for this host.
        digest: Digest,
        /// Its layers and their compressed sizes, lowest first.
        layers: Vec<(Digest, u64)>,
    },
    /// A layer is here already.
    Shared {
        /// The digest of its archive.
        layer: Digest,
    },
    /// A layer is being fetched.
    Downloading {
        /// The digest of its archive.
        layer: Digest,
        /// Downloaded so far.
        bytes: u64,
        /// Its compressed size.
        total: u64,
    },
    /// A layer is being unpacked.
    Unpacking {
        /// The digest of its archive.
        layer: Digest,
        /// Written so far.
        bytes: u64,
    },
    /// A layer is done.
    Unpacked {
        /// The digest of its archive.
        layer: Digest,
    },
}

/// Receives progress. Called often and from several threads, so it must return at once.
pub type Report = Arc<dyn Fn(Progress) + Send + Sync>;

/// Ignores progress.
pub fn silent() -> Report {
    Arc::new(|_| ())
}
