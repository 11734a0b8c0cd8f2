//! Limits that all pulls of a store in this process share: threads, and memory for decompression.
//!
//! To prevent deadlock, a permit is the last thing a task waits for: the holder of a download
//! permit only waits for the registry, the holder of an unpack permit waits for nothing, and nobody
//! holds both.

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

    /// A permit to download a layer, held until dropped.
    pub(crate) async fn download(&self) -> Result<SemaphorePermit<'_>, ImageError> {
        let permit = self.downloads.acquire().await;
        permit.map_err(|_| ImageError::Cancelled)
    }

    /// A permit to decompress, held until dropped by the unpacking thread, which may run a little
    /// longer than its caller waits.
    pub(crate) async fn unpack(&self) -> Result<OwnedSemaphorePermit, ImageError> {
        let permit = Arc::clone(&self.unpacks).acquire_owned().await;
        permit.map_err(|_| ImageError::Cancelled)
    }
}

#[cfg(test)]
mod tests;
