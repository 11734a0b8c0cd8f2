//! Ranges of host ids, one for each container that host root makes.
//!
//! A range is taken by a link named after it that points to the container's id: made
//! by one system call, so two makers never take the same, and readable after a crash. A
//! link whose container is gone is nobody's.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use hotcell_domain::ContainerId;
use hotcell_runtime::ids::{RANGE_COUNT, RANGE_FIRST, RANGE_LEN, range_base};
use rustix::fs::{FlockOperation, flock};

use super::home::Home;
use crate::EngineError;

/// Which container has which range.
#[derive(Debug)]
pub(super) struct Slots {
    directory: PathBuf,
}

impl Slots {
    pub(super) fn open(home: &Path) -> Result<Self, EngineError> {
        let directory = home.join("ids");
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&directory);
        made.map_err(EngineError::engine("make the engine's directory"))?;
        Ok(Self { directory })
    }

    /// Takes a free range for a container, and answers its base.
    pub(super) fn take(&self, id: &ContainerId, home: &Home) -> Result<u32, EngineError> {
        // A range that is nobody's is given away in two steps.
        let _lock = self
            .lock()
            .map_err(EngineError::engine("lock the user id ranges"))?;
        // Where to begin matters little, only that not everyone begins at the same.
        let first = id.as_str().bytes().fold(0_u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        for n in 0..RANGE_COUNT {
            let slot = first.wrapping_add(n) % RANGE_COUNT;
            let taken = self.take_slot(slot, id, home);
            if taken.map_err(EngineError::engine("take a range of user ids"))? {
                return range_base(slot).ok_or(EngineError::Exhausted {
                    resource: "user id ranges",
                });
            }
        }
        Err(EngineError::Exhausted {
            resource: "user id ranges",
        })
    }

    fn lock(&self) -> io::Result<File> {
        let directory = File::open(&self.directory)?;
        rustix::io::retry_on_intr(|| flock(&directory, FlockOperation::LockExclusive))?;
        Ok(directory)
    }

    fn take_slot(&self, slot: u32, id: &ContainerId, home: &Home) -> io::Result<bool> {
        let link = self.directory.join(slot.to_string());
        match symlink(id.as_str(), &link) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        let holder = fs::read_link(&link).unwrap_or_default();
        let holder = holder
            .to_str()
            .and_then(|name| ContainerId::parse(name).ok());
        if holder.is_some_and(|holder| holder == *id || home.directory(&holder).exists()) {
            return Ok(false);
        }
        let _ = fs::remove_file(&link);
        Ok(symlink(id.as_str(), &link).is_ok())
    }

    /// Gives a range back.
    pub(super) fn give_back(&self, base: u32) {
        let slot = base.wrapping_sub(RANGE_FIRST) / RANGE_LEN;
        // One that stays is nobody's as soon as its container is gone.
        let _ = fs::remove_file(self.directory.join(slot.to_string()));
    }
}
