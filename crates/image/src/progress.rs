//! What whoever waits for an image is told.

use std::sync::Arc;

use hotcell_domain::Digest;

/// One step of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The name was looked up: this is what will be fetched.
    Resolved {
        /// The manifest for this host.
        digest: Digest,
        /// Its layers and their sizes as they are sent, the lowest first.
        layers: Vec<(Digest, u64)>,
    },
    /// A layer is here already.
    Shared {
        /// Which.
        layer: Digest,
    },
    /// A layer is being fetched.
    Downloading {
        /// Which.
        layer: Digest,
        /// How much of it is here.
        bytes: u64,
        /// Of how much.
        total: u64,
    },
    /// A layer is being unpacked.
    Unpacking {
        /// Which.
        layer: Digest,
        /// How much of its content is written.
        bytes: u64,
    },
    /// A layer is done.
    Unpacked {
        /// Which.
        layer: Digest,
    },
}

/// Who is told. Called often and from several threads: it should return at once.
pub type Report = Arc<dyn Fn(Progress) + Send + Sync>;

/// Tells nobody.
pub fn silent() -> Report {
    Arc::new(|_| ())
}
