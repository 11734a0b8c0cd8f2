//! Unpacks one layer from a file into the store.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotcell_domain::Digest;
use tokio::task::spawn_blocking;

use crate::bounds::Bounds;
use crate::permits::PullPermits;
use crate::store::Store;
use crate::unpack::{Budget, Unpack};
use crate::{ImageError, Images, Progress, Report};

/// Stops the unpacking thread when its caller goes away.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Unpacks the layers of one image, which share a budget.
#[derive(Clone)]
pub(crate) struct Unpacker {
    store: Arc<Store>,
    permits: Arc<PullPermits>,
    bounds: Bounds,
    budget: Arc<Budget>,
    report: Report,
}

impl Unpacker {
    pub(crate) fn new(images: &Images, report: &Report) -> Self {
        Self {
            store: Arc::clone(&images.store),
            permits: Arc::clone(&images.permits),
            bounds: images.bounds,
            budget: Arc::new(Budget::of_image(&images.bounds)),
            report: Arc::clone(report),
        }
    }

    /// Unpacks a layer from a part of a file, once it has a permit, and adds it to the store. On
    /// `Err`, and if dropped, nothing of the layer is visible.
    pub(crate) async fn unpack(
        &self,
        blob: impl Read + Send + 'static,
        diff_id: &Digest,
    ) -> Result<(), ImageError> {
        let permit = self.permits.unpack().await?;
        let stop = Arc::new(AtomicBool::new(false));
        let _stop = StopOnDrop(Arc::clone(&stop));
        let (this, diff_id) = (self.clone(), diff_id.clone());
        let work = move || {
            let _permit = permit;
            this.unpack_now(blob, &diff_id, &stop)
        };
        let failed = |error| ImageError::disk("unpack a layer")(io::Error::other(error));
        spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(failed(error)))
    }

    fn unpack_now(
        &self,
        blob: impl Read + Send,
        diff_id: &Digest,
        stop: &AtomicBool,
    ) -> Result<(), ImageError> {
        let staging = self.store.staging_path()?;
        let layer = || diff_id.clone();
        let unpack = Unpack {
            bounds: &self.bounds,
            budget: &self.budget,
            stop,
            report: &|bytes| {
                (self.report)(Progress::Unpacking {
                    layer: layer(),
                    bytes,
                });
            },
        };
        let found = unpack.layer(blob, staging.directory()?)?;
        if found != *diff_id {
            return Err(ImageError::WrongDigest {
                what: "an unpacked layer",
                expected: layer(),
                found,
            });
        }
        if stop.load(Ordering::Relaxed) {
            return Err(ImageError::Cancelled);
        }
        staging.move_tree_to(&self.store.layer(diff_id))?;
        (self.report)(Progress::Unpacked { layer: layer() });
        Ok(())
    }
}

/// Opens a downloaded blob.
pub(crate) fn open(path: &std::path::Path) -> Result<File, ImageError> {
    File::open(path).map_err(ImageError::disk("open what was fetched"))
}
