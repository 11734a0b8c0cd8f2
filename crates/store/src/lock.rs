//! One server per state directory.
//!
//! The lock belongs to an open file, so it is released however the process ends, and no child
//! process inherits it. The file is never removed: otherwise two servers could each lock a
//! different file of that name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::OpenError;

const FILE_NAME: &str = "server.lock";

/// Longer than any process id.
const PID_BYTES_MAX: u64 = 32;

/// Holds the lock until dropped.
#[derive(Debug)]
pub(crate) struct StateLock(File);

impl StateLock {
    /// Takes the lock, or reports who has it.
    pub(crate) fn take(directory: &Path) -> Result<Self, OpenError> {
        let failed = |step| move |source: io::Error| OpenError::io(step, directory, source);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(FILE_NAME))
            .map_err(failed("open the lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(OpenError::Locked {
                    directory: directory.to_owned(),
                    pid: holder(file),
                });
            }
            Err(error) => return Err(failed("take the lock")(error.into())),
        }
        sign(&file).map_err(failed("write the lock"))?;
        Ok(Self(file))
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // A process that fails to take the lock right now must not read our pid.
        let _ = self.0.set_len(0);
        // Explicit, because a child between fork and exec still has the file open.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn sign(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_lock_names_its_holder_and_is_free_again_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let lock = StateLock::take(directory.path()).unwrap();
        let refused = StateLock::take(directory.path()).unwrap_err();
        let ours = std::process::id();
        assert!(matches!(refused, OpenError::Locked { pid: Some(pid), .. } if pid == ours));
        drop(lock);
        assert!(StateLock::take(directory.path()).is_ok());
    }

    #[test]
    fn no_program_that_is_started_inherits_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let lock = StateLock::take(directory.path()).unwrap();
        let flags = rustix::io::fcntl_getfd(&lock.0).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn whatever_a_lock_file_says_does_not_keep_us_out() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), [0xff; 1000]).unwrap();
        let lock = StateLock::take(directory.path()).unwrap();
        drop(lock);
        assert!(StateLock::take(directory.path()).is_ok());
    }
}
