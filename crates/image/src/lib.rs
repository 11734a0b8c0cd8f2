//! Images: fetched from a registry or a file, verified, unpacked once per layer, and kept.
//!
//! Everything from outside is untrusted: registries, manifests, layers. It is bounded, verified by
//! digest before it becomes visible, and unpacked beneath one directory. Only images that policy
//! has admitted are fetched ([`Admitted`]).

#![forbid(unsafe_code)]

mod accounts;
mod archive;
mod bounds;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hash;
mod layer;
mod permits;
mod progress;
mod pull;
mod registry;
mod store;
mod unpack;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Admitted, Digest, Reference, Source};

pub use accounts::Accounts;
pub use bounds::Bounds;
pub use error::ImageError;
pub use progress::{Progress, Report, silent};
pub use registry::{Credentials, Login};
pub use store::{Collected, Config, GcHold, Image, Origin};

use crate::permits::PullPermits;
use crate::store::Store;

/// The image store in one directory. Several processes may use it at once; clones in one process
/// share the limits on concurrent pulls.
#[derive(Debug, Clone)]
pub struct Images {
    store: Arc<Store>,
    permits: Arc<PullPermits>,
    bounds: Bounds,
}

impl Images {
    /// Opens the store; creates the directory if it is missing.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        Self::open_with(dir, Bounds::default())
    }

    /// Opens the store with other bounds.
    pub fn open_with(dir: &Path, bounds: Bounds) -> Result<Self, ImageError> {
        Ok(Self {
            store: Arc::new(Store::open(dir)?),
            permits: Arc::new(PullPermits::new()),
            bounds,
        })
    }

    /// The image behind an admitted name, if it is here. A tag refers to the image that it had when
    /// it was pulled.
    pub fn find(&self, source: &Admitted<Source>) -> Option<Image> {
        let source = source.value();
        let reference = &source.reference;
        let found = self.store.find(reference).or_else(|| {
            let digest = reference.digest()?;
            let is_it = |image: &Image| {
                image.digest == *digest && image.reference.name() == reference.name()
            };
            let image = self.store.list().ok()?.into_iter().find(is_it)?;
            Some(Image {
                reference: reference.clone(),
                ..image
            })
        })?;
        (source.local || found.origin == Origin::Registry).then_some(found)
    }

    /// The image if it is here, else pulls it.
    pub async fn ensure(
        &self,
        source: &Admitted<Source>,
        credentials: &Credentials,
        report: &Report,
    ) -> Result<Image, ImageError> {
        match self.find(source) {
            Some(image) => Ok(image),
            None => self.pull(source, credentials, report).await,
        }
    }

    /// All images, by name.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        self.store.list()
    }

    /// Prevents any removal until it is dropped. To start a container, hold the store from before
    /// `find` until the container is recorded.
    pub fn hold(&self) -> Result<GcHold, ImageError> {
        self.store.hold()
    }

    /// The directory of unpacked layers, each named by [`layer_name`].
    pub fn layers_dir(&self) -> PathBuf {
        self.store.layers()
    }

    /// Records that a container was created from an image.
    pub fn used(&self, image: &Image) {
        self.store.touch(&image.manifest);
    }

    /// Removes a name, and whatever nothing else needs. `in_use` returns the manifests of images
    /// that containers use; it is called while no container can be created.
    pub fn remove(
        &self,
        reference: &Reference,
        in_use: InUse<'_>,
    ) -> Result<Collected, ImageError> {
        self.store.remove(reference, in_use)
    }

    /// Removes what no name and no container needs, and what interrupted pulls have left; with
    /// `idle`, also images from which no container was created for this long. Partial downloads are
    /// kept for a day, so that the next pull can resume them.
    pub fn gc(&self, in_use: InUse<'_>, idle: Option<Duration>) -> Result<Collected, ImageError> {
        self.store.gc(in_use, idle)
    }

    /// What [`Images::gc`] would remove now. Removes nothing.
    pub fn count_garbage(
        &self,
        in_use: InUse<'_>,
        idle: Option<Duration>,
    ) -> Result<Collected, ImageError> {
        self.store.count_garbage(in_use, idle)
    }
}

/// Returns the manifests of the images that containers use.
pub type InUse<'a> = &'a dyn Fn() -> io::Result<BTreeSet<Digest>>;

/// The directory name of a layer.
pub fn layer_name(layer: &Digest) -> &str {
    layer.hex()
}
