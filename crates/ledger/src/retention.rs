//! Removes segments that are too old or too many. Only sealed segments are removed, the oldest
//! first.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::LedgerSettings;
use crate::segment::{SegmentId, list};

/// The segments to remove, oldest first, and the first event that is left then. `current` is being
/// written.
pub(crate) fn excess(
    settings: &LedgerSettings,
    current: SegmentId,
) -> io::Result<(Vec<SegmentId>, u64)> {
    let directory = &settings.directory;
    let segments = list(directory)?;
    let sizes: Vec<u64> = segments.iter().map(|id| size(directory, *id)).collect();
    let mut total: u64 = sizes.iter().sum();
    let mut excess = Vec::new();
    for (id, size) in segments.iter().zip(sizes) {
        let is_sealed = *id < current;
        let is_much = settings
            .bytes_max
            .is_some_and(|bytes_max| total > bytes_max);
        if !is_sealed || !(is_much || is_old(settings, *id)) {
            break;
        }
        total -= size;
        excess.push(*id);
    }
    let left = segments.get(excess.len()).map_or(current.0, |id| id.0);
    Ok((excess, left))
}

fn is_old(settings: &LedgerSettings, id: SegmentId) -> bool {
    let age = fs::metadata(id.sealed_path(&settings.directory))
        .and_then(|found| found.modified())
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok());
    matches!((age, settings.retention), (Some(age), Some(retention)) if age > retention)
}

fn size(directory: &Path, id: SegmentId) -> u64 {
    let size = |path| fs::metadata(path).map_or(0, |found| found.len());
    size(id.open_path(directory)) + size(id.sealed_path(directory))
}

/// Removes a segment, sealed or not.
pub(crate) fn remove(directory: &Path, id: SegmentId) -> io::Result<()> {
    for path in [id.open_path(directory), id.sealed_path(directory)] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
