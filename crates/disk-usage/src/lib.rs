//! Measures what a directory takes of the disk. Whoever filled it is hostile and goes on while we
//! look.
//!
//! What is counted: blocks, not sizes, so that a sparse file counts as what it takes; a file with
//! several links once, each link with its share; each name as a file. Nothing is followed, nothing
//! recurses, and a walk ends after a bounded number of names and levels.
//!
//! What a walk cannot see: files that have no name any more and are still open, and what is moved
//! out of its way. The next walk starts anew.

#![forbid(unsafe_code)]

mod closed;

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use closed::Opened;

/// Levels of directories that a walk enters, each of which needs a descriptor. What programs make
/// has some dozens.
pub const DEPTH_MAX: usize = 256;

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// What a directory takes of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of files and directories, in bytes.
    pub bytes: u64,
    /// Names of files, directories and links.
    pub files: u64,
    /// There are more levels than [`DEPTH_MAX`], which were not entered.
    pub is_too_deep: bool,
    /// There are more names than asked for, and the rest was not looked at.
    pub is_cut: bool,
    /// Directories that we may not look into.
    pub unread: u64,
}

/// Measures what is below `path`, which is not counted itself. Ends after `files_max` names.
pub fn measure(path: &Path, files_max: u64) -> io::Result<Usage> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty())?;
    measure_in(top, files_max)
}

/// The same for an open directory.
pub fn measure_in(top: OwnedFd, files_max: u64) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut levels = vec![Opened::readable(Dir::new(top)?)];
    while let Some(level) = levels.last_mut() {
        // A directory that fails was removed while we read it: what is left is seen next time.
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
    /// Counts one name; answers the directory that it is, if it can be entered.
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

/// What one link to a file takes: all links are below one directory, so their shares are the whole.
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
