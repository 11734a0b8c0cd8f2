//! Images: fetched from a registry or a file, verified, unpacked once per layer, and kept.
//!
//! Everything that comes from outside is untrusted: registries, manifests, layers. It is
//! bounded, verified by digest before anything of it can be seen, and unpacked beneath one
//! directory. Only what policy let in is fetched ([`Admitted`]).

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

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

/// The images of one directory. Several processes may use it at once; in one, clones
/// share what pulls may take of the host.
#[derive(Debug, Clone)]
pub struct Images {
    store: Arc<Store>,
    permits: Arc<PullPermits>,
    bounds: Bounds,
}

impl Images {
    /// Opens a directory of images, and makes it if it is missing.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        Self::open_with(dir, Bounds::default())
    }

    /// The same, with other bounds.
    pub fn open_with(dir: &Path, bounds: Bounds) -> Result<Self, ImageError> {
        Ok(Self {
            store: Arc::new(Store::open(dir)?),
            permits: Arc::new(PullPermits::new()),
            bounds,
        })
    }

    /// What a name that was let in stands for, if it is here. A tag means what it meant
    /// when it was pulled.
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

    /// Every image that is here, by name.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        self.store.list()
    }

    /// Keeps everything from being removed until it is dropped. Whoever starts a container
    /// holds the store from before `find` until the container is known to be one.
    pub fn hold(&self) -> Result<GcHold, ImageError> {
        self.store.hold()
    }

    /// The directory that holds the unpacked layers, each named by [`layer_name`].
    pub fn layers_dir(&self) -> PathBuf {
        self.store.layers()
    }

    /// Remembers that a container was made of an image.
    pub fn used(&self, image: &Image) {
        self.store.touch(&image.manifest);
    }

    /// Removes a name, and whatever nothing else needs. `in_use` is asked for the manifests
    /// of the images of containers, at a moment when none can be made.
    pub fn remove(
        &self,
        reference: &Reference,
        in_use: InUse<'_>,
    ) -> Result<Collected, ImageError> {
        self.store.remove(reference, in_use)
    }

    /// Removes what no name and no container needs, and what pulls that died left; with
    /// `idle`, also images of which no container was made for so long. What was fetched of
    /// a layer stays for a day, so that the next pull can continue it.
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

/// Tells the manifests of the images that containers are made of.
pub type InUse<'a> = &'a dyn Fn() -> io::Result<BTreeSet<Digest>>;

/// What the directory of a layer is called.
pub fn layer_name(layer: &Digest) -> &str {
    layer.hex()
}
