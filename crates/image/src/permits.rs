//! What all pulls of a store in this process take together: threads, and memory to
//! decompress.
//!
//! A permit is the last thing that is waited for: who has one to download waits for the
//! registry alone, who has one to unpack waits for nothing, and nobody has both. So those
//! who wait for a lock while others wait for a permit all get theirs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::ImageError;
use crate::bounds::{DOWNLOADS_MAX, UNPACKS_MAX};

#[derive(Debug)]
pub(crate) struct PullPermits {
    downloads: Semaphore,
    unpacks: Arc<Semaphore>,
}

impl PullPermits {
    pub(crate) fn new() -> Self {
        Self {
            downloads: Semaphore::new(DOWNLOADS_MAX),
            unpacks: Arc::new(Semaphore::new(UNPACKS_MAX)),
        }
    }

    /// A permit to fetch a layer, until it is dropped.
    pub(crate) async fn download(&self) -> Result<SemaphorePermit<'_>, ImageError> {
        let permit = self.downloads.acquire().await;
        permit.map_err(|_| ImageError::Cancelled)
    }

    /// A permit to decompress, until it is dropped: by the thread that does it, which may
    /// go on a little after nobody waits for it any more.
    pub(crate) async fn unpack(&self) -> Result<OwnedSemaphorePermit, ImageError> {
        let permit = Arc::clone(&self.unpacks).acquire_owned().await;
        permit.map_err(|_| ImageError::Cancelled)
    }
}

#[cfg(test)]
mod tests;
