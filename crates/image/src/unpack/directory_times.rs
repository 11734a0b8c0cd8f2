//! Timestamps of directories, which are set at the end: adding files to a directory changes its
//! time.

use std::collections::BTreeMap;

use super::UnpackError;
use crate::bounds::DIRECTORY_TIMES_BYTES_MAX;

/// The memory per directory besides its path.
const FIXED_BYTES: usize = 64;

/// Directories by path, in at most `DIRECTORY_TIMES_BYTES_MAX`.
#[derive(Default)]
pub(super) struct DirectoryTimes {
    times: BTreeMap<Vec<u8>, i64>,
    bytes: usize,
}

impl DirectoryTimes {
    /// Records a directory's time, replacing an earlier one.
    pub(super) fn insert(&mut self, path: Vec<u8>, mtime_s: i64) -> Result<(), UnpackError> {
        if let Some(time) = self.times.get_mut(&path) {
            *time = mtime_s;
            return Ok(());
        }
        self.bytes += path.len() + FIXED_BYTES;
        if self.bytes > DIRECTORY_TIMES_BYTES_MAX {
            return Err(UnpackError::TooLarge {
                what: "the names of a layer's directories",
                max: DIRECTORY_TIMES_BYTES_MAX as u64,
            });
        }
        self.times.insert(path, mtime_s);
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> {
        self.times.iter().map(|(path, time)| (&path[..], *time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::PATH_BYTES_MAX;

    #[test]
    fn a_directory_that_comes_again_and_again_is_held_once() {
        let mut times = DirectoryTimes::default();
        let path = vec![b'a'; PATH_BYTES_MAX];
        let last = i64::try_from(DIRECTORY_TIMES_BYTES_MAX / PATH_BYTES_MAX).unwrap();
        for time in 0..=last {
            times.insert(path.clone(), time).unwrap();
        }
        let kept: Vec<_> = times.iter().collect();
        assert_eq!(kept, [(&path[..], last)]);
    }

    #[test]
    fn directories_with_long_names_stop_at_their_bound() {
        let mut times = DirectoryTimes::default();
        let mut path = vec![b'a'; PATH_BYTES_MAX];
        let mut kept = 0;
        let error = loop {
            path[..8].copy_from_slice(&usize::to_ne_bytes(kept));
            match times.insert(path.clone(), 0) {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
            assert!(
                kept * PATH_BYTES_MAX <= DIRECTORY_TIMES_BYTES_MAX,
                "no bound"
            );
        };
        assert!(matches!(error, UnpackError::TooLarge { .. }), "{error}");
        assert!(kept > DIRECTORY_TIMES_BYTES_MAX / (2 * PATH_BYTES_MAX));
    }
}
