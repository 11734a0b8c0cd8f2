//! The disk reserve of the state directory, so that running work can be recorded to its end.
//!
//! Below the reserve, new work is refused: containers, execs, file writes. Reading, ending and
//! removing still work, and everything works again once there is enough space.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hotcell_store::{Disk, Store};
use tokio::time::Instant;

use crate::ServiceError;
use crate::environment::Environment;

/// How long a measurement is used.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The default reserve: this, or a share of the disk if that is less.
const RESERVE_BYTES: u64 = 512 << 20;
const RESERVE_SHARE: u64 = 50;

/// The last measurement.
#[derive(Debug, Default)]
pub(crate) struct Space(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    at: Option<Instant>,
    /// Free and reserved bytes, if there is too little.
    low: Option<(u64, u64)>,
}

impl Environment {
    /// Refuses new work while the disk is below its reserve.
    pub(crate) fn has_room(&self) -> Result<(), ServiceError> {
        let reserve = self.settings().reserve_bytes;
        match self.space.low(&self.store, reserve) {
            None => Ok(()),
            Some((free, reserve)) => Err(ServiceError::Exhausted {
                reason: format!(
                    "the server's disk is nearly full: {} MiB are free, and {} MiB are kept in reserve; \
                     delete files or kill containers, or have the operator make room or lower --reserve-bytes",
                    free >> 20,
                    reserve >> 20
                ),
            }),
        }
    }
}

impl Space {
    fn low(&self, store: &Store, reserve: Option<u64>) -> Option<(u64, u64)> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.at.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL) {
            seen.look(store, reserve);
        }
        seen.low
    }
}

impl Seen {
    /// If the disk cannot be measured, it counts as having room: work that needs it will fail by
    /// itself.
    fn look(&mut self, store: &Store, reserve: Option<u64>) {
        let was_low = self.low.is_some();
        self.at = Some(Instant::now());
        self.low = match store.disk() {
            Ok(disk) => shortage(disk, reserve),
            Err(error) => {
                tracing::warn!(%error, "could not ask for the free space of the state directory");
                None
            }
        };
        match self.low {
            Some((free_bytes, reserve_bytes)) if !was_low => tracing::warn!(
                free_bytes,
                reserve_bytes,
                "the disk of the state directory is nearly full; new containers, execs and files are refused"
            ),
            None if was_low => tracing::info!("the disk of the state directory has room again"),
            Some(_) | None => {}
        }
    }
}

fn shortage(disk: Disk, reserve: Option<u64>) -> Option<(u64, u64)> {
    let usual = || RESERVE_BYTES.min(disk.total_bytes / RESERVE_SHARE);
    let reserve = reserve.unwrap_or_else(usual);
    (disk.free_bytes < reserve).then_some((disk.free_bytes, reserve))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_reserve_is_what_was_chosen_or_a_share_of_the_disk() {
        let disk = |free_bytes, total_bytes| Disk {
            free_bytes,
            total_bytes,
        };
        assert_eq!(shortage(disk(GIB, 1000 * GIB), None), None);
        let low = shortage(disk(GIB / 4, 1000 * GIB), None);
        assert_eq!(low, Some((GIB / 4, RESERVE_BYTES)));
        assert_eq!(shortage(disk(GIB / 4, GIB), None), None);
        assert!(shortage(disk(GIB / 60, GIB), None).is_some());
        assert_eq!(shortage(disk(5, GIB), Some(5)), None);
        assert_eq!(shortage(disk(4, GIB), Some(5)), Some((4, 5)));
        assert_eq!(shortage(disk(0, GIB), Some(0)), None);
    }
}
