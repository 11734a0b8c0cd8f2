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
    _file: Arc<Locked>,
}

/// A locked file, unlocked when dropped.
#[derive(Debug)]
pub(super) struct Locked(pub(super) File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough: a child between fork and exec still has the file open.
        let _ = self.0.unlock();
    }
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
                        _file: Arc::new(Locked(file)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_has_the_file_open_does_not_keep_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let ours = open();
        ours.try_lock().unwrap();
        let of_child = ours.try_clone().unwrap();
        let locked = Locked(ours);
        assert!(open().try_lock().is_err());
        drop(locked);
        open().try_lock().unwrap();
        drop(of_child);
    }
}
