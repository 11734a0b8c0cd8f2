//! Frees replaced files in the background.
//!
//! The kernel frees a file in the call that drops its last reference, which takes 0.1 ms for a
//! small file on ext4 and far longer for a large one. We keep a descriptor across the change and
//! close it on a thread that no caller waits for. The change itself is the same without it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::beneath::Location;

/// Files held at a time; limits descriptors and blocks that are not freed yet.
const HELD_MAX: usize = 8;

/// Hands out the right to hold a file that is about to be deleted.
#[derive(Clone, Debug)]
pub(super) struct Releases {
    permits: Arc<Semaphore>,
}

/// A file that is about to be deleted. Dropping it frees the file at once.
#[derive(Debug)]
#[must_use]
pub(super) struct PendingRelease(Option<(OwnedFd, OwnedSemaphorePermit)>);

impl Releases {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(HELD_MAX)),
        }
    }

    /// Holds the file at `location`. If there is none, or too many are held, holds nothing, and the
    /// change itself frees the file.
    pub(super) fn hold(&self, location: &Location) -> PendingRelease {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        let handle = permit.and_then(|permit| Some((location.open(OFlags::PATH).ok()?, permit)));
        PendingRelease(handle)
    }
}

impl PendingRelease {
    /// Closes the descriptor, on another thread if that frees the file. Does not wait.
    pub(super) fn release(self) {
        let Some((handle, permit)) = self.0 else {
            return;
        };
        let is_nameless = rustix::fs::fstat(&handle).is_ok_and(|stat| stat.st_nlink == 0);
        if is_nameless {
            tokio::task::spawn_blocking(move || {
                drop(handle);
                drop(permit);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::{AsRawFd, RawFd};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::super::beneath::Beneath;
    use super::super::path::RelPath;
    use super::*;

    const DEADLINE: Duration = Duration::from_mins(1);

    fn file() -> (tempfile::TempDir, Location) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "old").unwrap();
        let path = RelPath::parse(b"file", b"/workspace").unwrap();
        let location = Beneath::open(dir.path()).unwrap().location(&path).unwrap();
        (dir, location)
    }

    fn descriptor(held: &PendingRelease) -> Option<RawFd> {
        held.0.as_ref().map(|(handle, _)| handle.as_raw_fd())
    }

    fn is_open(descriptor: RawFd, dir: &tempfile::TempDir) -> bool {
        fs::read_link(format!("/proc/self/fd/{descriptor}"))
            .is_ok_and(|target| target.starts_with(dir.path()))
    }

    #[test]
    fn a_file_without_a_name_is_freed_by_another_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let (go, wait) = mpsc::channel::<()>();
        runtime.spawn_blocking(move || wait.recv_timeout(DEADLINE));
        let (dir, location) = file();
        let releases = Releases::new();
        let held = releases.hold(&location);
        let descriptor = descriptor(&held).unwrap();
        fs::remove_file(dir.path().join("file")).unwrap();
        held.release();
        assert!(is_open(descriptor, &dir), "the only thread was busy");
        go.send(()).unwrap();
        let start = Instant::now();
        while releases.permits.available_permits() < HELD_MAX {
            assert!(start.elapsed() < DEADLINE, "it is held for ever");
            std::thread::yield_now();
        }
        assert!(!is_open(descriptor, &dir));
    }

    #[test]
    fn a_file_that_keeps_a_name_is_let_go_at_once() {
        let (dir, location) = file();
        let releases = Releases::new();
        let held = releases.hold(&location);
        let descriptor = descriptor(&held).unwrap();
        // There is no runtime here, so no other thread.
        held.release();
        assert!(!is_open(descriptor, &dir));
        assert_eq!(releases.permits.available_permits(), HELD_MAX);
    }

    #[test]
    fn no_more_is_held_than_the_bound() {
        let (_dir, location) = file();
        let releases = Releases::new();
        let all: Vec<_> = (0..HELD_MAX).map(|_| releases.hold(&location)).collect();
        assert!(all.iter().all(|held| descriptor(held).is_some()));
        assert_eq!(descriptor(&releases.hold(&location)), None);
        drop(all);
        assert!(descriptor(&releases.hold(&location)).is_some());
    }
}
