//! One layer, from a file to its place in the store.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotcell_domain::Digest;
use tokio::task::spawn_blocking;

use crate::bounds::Bounds;
use crate::store::Store;
use crate::unpack::Unpack;
use crate::{ImageError, Progress, Report};

/// Tells a thread that nobody waits for it any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Unpacks a layer out of a part of a file and puts it into the store. On `Err`, and when
/// dropped, nothing of it can be seen.
pub(crate) async fn unpack(
    store: &Arc<Store>,
    bounds: Bounds,
    blob: impl Read + Send + 'static,
    diff_id: &Digest,
    report: &Report,
) -> Result<(), ImageError> {
    let stop = Arc::new(AtomicBool::new(false));
    let _stop = StopOnDrop(Arc::clone(&stop));
    let (store, diff_id, report) = (Arc::clone(store), diff_id.clone(), Arc::clone(report));
    let work = move || unpack_now(&store, &bounds, blob, &diff_id, &report, &stop);
    spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(ImageError::disk("unpack a layer")(io::Error::other(error))))
}

fn unpack_now(
    store: &Store,
    bounds: &Bounds,
    blob: impl Read + Send,
    diff_id: &Digest,
    report: &Report,
    stop: &AtomicBool,
) -> Result<(), ImageError> {
    let fresh = store.fresh()?;
    let layer = || diff_id.clone();
    let unpack = Unpack {
        bounds,
        stop,
        report: &|bytes| {
            report(Progress::Unpacking {
                layer: layer(),
                bytes,
            });
        },
    };
    let found = unpack.layer(blob, fresh.directory()?)?;
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
    fresh.move_to(&store.layer(diff_id))?;
    report(Progress::Unpacked { layer: layer() });
    Ok(())
}

/// Opens what was fetched.
pub(crate) fn open(path: &std::path::Path) -> Result<File, ImageError> {
    File::open(path).map_err(ImageError::disk("open what was fetched"))
}
