//! Joins concurrent fetches of the same content, in this process or another: one does it, the
//! others wait and find it done.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use crate::ImageError;
use crate::bounds::LOCK_PAUSE;

/// Held during a fetch. Released when the last clone is dropped, or when the process dies.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    _file: Arc<File>,
}

impl Lock {
    /// Acquires the lock; also returns whether it had to wait. The wait is bounded, because
    /// fetching has timeouts.
    pub(super) async fn acquire(path: &Path) -> Result<(Self, bool), ImageError> {
        let step = "lock what is fetched";
        let mut has_waited = false;
        loop {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path)
                .map_err(ImageError::disk(step))?;
            match file.try_lock() {
                Ok(()) => {
                    let lock = Self {
                        _file: Arc::new(file),
                    };
                    return Ok((lock, has_waited));
                }
                Err(TryLockError::WouldBlock) => {
                    has_waited = true;
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::Error(error)) => return Err(ImageError::disk(step)(error)),
            }
        }
    }
}
