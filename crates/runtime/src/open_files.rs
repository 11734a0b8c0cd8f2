//! The processes of a container, as the host sees them, and the deleted files that they hold open.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Most processes that are examined; a container's own limit is lower.
const PROCESSES_MAX: usize = 4096;

/// Most open files that are examined. Further ones are not counted.
const FILES_MAX: usize = 16 << 10;

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Whether a process has children. If unknown, it counts as having some.
pub fn has_children(pid: u32) -> bool {
    children(pid).is_none_or(|children| !children.is_empty())
}

/// The disk usage of deleted files on a device that descendants of a process hold open. Files that
/// are only mapped, or in flight through a socket, are not counted.
pub fn deleted_bytes(pid: u32, device: u64) -> u64 {
    let mut seen = HashSet::new();
    let mut left = FILES_MAX;
    let mut bytes: u64 = 0;
    for pid in descendants(pid) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            left -= 1;
            if left == 0 {
                return bytes;
            }
            // Follows the link to the file itself, which needs no name.
            let Ok(found) = fs::metadata(entry.path()) else {
                continue;
            };
            let is_deleted = found.nlink() == 0 && found.dev() == device;
            if is_deleted && seen.insert(found.ino()) {
                bytes = bytes.saturating_add(found.blocks().saturating_mul(BLOCK_BYTES));
            }
        }
    }
    bytes
}

fn descendants(pid: u32) -> Vec<u32> {
    let mut found = children(pid).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next)
        && found.len() < PROCESSES_MAX
    {
        // A process that has exited has no children; they were reparented to its keeper.
        let children = children(*pid).unwrap_or_default();
        found.extend(children);
        next += 1;
    }
    found
}

/// The children of all threads of a process; `None` if it is gone.
fn children(pid: u32) -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(thread.path().join("children")) else {
            continue;
        };
        children.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Some(children)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_deleted_file_that_a_descendant_holds_open_is_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let device = file.metadata().unwrap().dev();
        // Its child holds it too, as standard output.
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & echo; read x"])
            .stdin(Stdio::piped())
            .stdout(file)
            .spawn()
            .unwrap();
        let own = std::process::id();
        assert!(has_children(own));
        let before = deleted_bytes(own, device);
        fs::remove_file(&path).unwrap();
        let after = deleted_bytes(own, device);
        assert!(
            (1 << 20..2 << 20).contains(&(after - before)),
            "{before} {after}"
        );
        assert_eq!(deleted_bytes(own, device + 1), 0);
        for pid in descendants(child.id()) {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
