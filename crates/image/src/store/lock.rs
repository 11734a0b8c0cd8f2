//! Joins those who fetch the same thing, in this process or another: one does it, the
//! others wait and find it done.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use crate::ImageError;
use crate::bounds::LOCK_PAUSE;

/// Held while something is fetched. Given up when the last clone is dropped, or when we
/// die.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    _file: Arc<File>,
}

impl Lock {
    /// Waits for it, and says whether it had to. Whoever has it makes progress or gives up:
    /// fetching has deadlines.
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
