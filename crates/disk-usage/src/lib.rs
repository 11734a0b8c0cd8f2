//! Measures the disk usage of a directory whose content is hostile and changes meanwhile.
//!
//! It counts blocks, not sizes, so that a sparse file counts for what it occupies; a file with
//! several links once, divided between its links; and each name as a file. It follows no links,
//! does not recurse, and ends after a bounded number of names and levels.
//!
//! It cannot see deleted files that are still open, and files that are moved out of its way. The
//! next measurement starts anew.

#![forbid(unsafe_code)]

mod closed;

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use closed::Opened;

/// Most directory levels, each of which needs a descriptor. Real programs create some dozens.
pub const DEPTH_MAX: usize = 256;

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// The disk usage of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of files and directories, in bytes.
    pub bytes: u64,
    /// Names of files, directories and links.
    pub files: u64,
    /// Whether there are more levels than [`DEPTH_MAX`], which were not entered.
    pub is_too_deep: bool,
    /// Whether there are more names than requested; the rest was not counted.
    pub is_cut: bool,
    /// Number of directories that could not be read.
    pub unread: u64,
}

/// Measures the contents of `path`, without `path` itself. Stops after `files_max` names.
pub fn measure(path: &Path, files_max: u64) -> io::Result<Usage> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty())?;
    measure_in(top, files_max)
}

/// Like [`measure`], for an open directory.
pub fn measure_in(top: OwnedFd, files_max: u64) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut levels = vec![Opened::readable(Dir::new(top)?)];
    while let Some(level) = levels.last_mut() {
        // A directory that fails was removed while it was read; the next measurement sees the rest.
        let Some(Ok(entry)) = level.directory.next() else {
            levels.pop();
            continue;
        };
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        if usage.files >= files_max {
            usage.is_cut = true;
            return Ok(usage);
        }
        let is_full = levels.len() >= DEPTH_MAX;
        let at = levels.last().and_then(|level| level.directory.fd().ok());
        let inner = at.and_then(|at| usage.count(at, name, is_full));
        levels.extend(inner);
    }
    Ok(usage)
}

impl Usage {
    /// Counts one name; returns the opened directory if it is one that can be entered.
    fn count(&mut self, at: BorrowedFd<'_>, name: &CStr, is_full: bool) -> Option<Opened> {
        let found = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return None,
            Err(_) => {
                self.files += 1;
                self.unread += 1;
                return None;
            }
        };
        self.files += 1;
        self.bytes = self.bytes.saturating_add(share(&found));
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return None;
        }
        if is_full {
            self.is_too_deep = true;
            return None;
        }
        match closed::open(at, name) {
            Ok(directory) => Some(directory),
            // It was removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            Err(_) => {
                self.unread += 1;
                None
            }
        }
    }
}

/// The part of a file's blocks for one of its links: all links are below one directory, so the
/// parts add up.
fn share(found: &Stat) -> u64 {
    let bytes = u64::try_from(found.st_blocks)
        .unwrap_or(0)
        .saturating_mul(BLOCK_BYTES);
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return bytes;
    }
    #[expect(
        clippy::useless_conversion,
        reason = "its width differs between architectures"
    )]
    bytes.div_ceil(u64::from(found.st_nlink).max(1))
}

#[cfg(test)]
mod tests;
