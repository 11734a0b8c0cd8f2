//! Pulls an image for a container, and reports the progress.

use std::sync::{Arc, Mutex, PoisonError};

use hotcell_domain::{Admitted, Reference, Source};
use hotcell_image::{Credentials, Images, Report, layer_name};

use crate::progress::LayerTotals;
use crate::pulls::pull_error;
use crate::{EngineError, Progress};

/// Pulls an admitted image, unless another pull has just done so.
pub(super) async fn pull(
    images: &Images,
    source: &Admitted<Source>,
    credentials: &Credentials,
    progress: Progress,
) -> Result<(), EngineError> {
    let reference = &source.value().reference;
    let report = report(reference.clone(), progress);
    let pulled = images.ensure(source, credentials, &report).await;
    pulled
        .map(drop)
        .map_err(|error| pull_error(reference, error))
}

/// Reports the progress of all layers together.
fn report(image: Reference, progress: Progress) -> Report {
    use hotcell_image::Progress as Step;
    let totals = Mutex::new(LayerTotals::new(image));
    Arc::new(move |step| {
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        match step {
            Step::Resolved { layers, .. } => {
                for (layer, size) in layers {
                    totals.set(layer_name(&layer), Some(0), Some(size));
                }
            }
            Step::Downloading {
                layer,
                bytes,
                total,
            } => totals.set(layer_name(&layer), Some(bytes), Some(total)),
            Step::Shared { layer } | Step::Unpacked { layer } => {
                totals.set(layer_name(&layer), None, None);
            }
            Step::Unpacking { .. } => {}
        }
        progress.send(totals.sum());
    })
}
