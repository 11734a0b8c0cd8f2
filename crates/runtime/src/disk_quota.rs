//! Project quotas: the kernel limits the disk usage of all files with one project id.
//!
//! New files and directories inherit the project id of their directory. Nobody in a container can
//! change it: the kernel allows that only in the initial user namespace, and our seccomp filter
//! also refuses the request.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::sys;

/// Project ids of probes: below those of containers, which are the first ids of their user id
/// ranges.
const PROBE_PROJECT_FIRST: u32 = 0x6fff_0000;

const PROBE_BYTES: u64 = 64 << 10;
const PROBE_FILES: u64 = 8;
const PROBE_LIMIT: ProjectUse = ProjectUse {
    bytes: PROBE_BYTES,
    files: PROBE_FILES,
};

/// Usage or limit of a project's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUse {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, directories and links.
    pub files: u64,
}

/// Sets the project id of an empty directory, which everything in it inherits, and its limit. On
/// `Err` a limit may be set for the id, but the directory is not limited.
pub fn limit(directory: &Path, project: u32, limit: ProjectUse) -> io::Result<()> {
    let directory = File::open(directory)?;
    sys::set_project_limits(directory.as_fd(), project, limit.bytes, limit.files)?;
    sys::set_project(directory.as_fd(), project)
}

/// The disk usage of a project's files.
pub fn used(directory: &Path, project: u32) -> io::Result<ProjectUse> {
    let (bytes, files) = sys::project_use(File::open(directory)?.as_fd(), project)?;
    Ok(ProjectUse { bytes, files })
}

/// Removes the limits of a project whose files are gone.
pub fn lift(directory: &Path, project: u32) -> io::Result<()> {
    sys::set_project_limits(File::open(directory)?.as_fd(), project, 0, 0)
}

/// Tests whether quotas work in a directory, by writing beyond one. `scratch` is created there and
/// removed.
pub fn probe(scratch: &Path) -> io::Result<()> {
    let project = PROBE_PROJECT_FIRST | (std::process::id() & 0xffff);
    fs::create_dir(scratch)?;
    let tried = limit(scratch, project, PROBE_LIMIT).and_then(|()| {
        // In a thread of its own, because capabilities are per thread.
        std::thread::scope(|scope| {
            let tried = scope.spawn(|| try_limits(scratch)).join();
            tried.unwrap_or_else(|_| Err(io::Error::other("the probe panicked")))
        })
    });
    let removed = fs::remove_dir_all(scratch);
    if let Some(parent) = scratch.parent() {
        // Without quotas there is nothing to remove.
        let _ = lift(parent, project);
    }
    tried.and(removed)
}

/// Writes beyond the limits, like a container would: quotas do not apply to a process with
/// `CAP_SYS_RESOURCE`.
fn try_limits(scratch: &Path) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets)?;
    let mut file = File::create(scratch.join("file"))?;
    let page = [0; 4096];
    file.write_all(&page)?;
    let pages = 2 * PROBE_BYTES / page.len() as u64;
    must_be_refused((0..pages).try_for_each(|_| file.write_all(&page)), "bytes")?;
    let mut numbers = 0..2 * PROBE_FILES;
    let made =
        numbers.try_for_each(|number| File::create(scratch.join(number.to_string())).map(drop));
    must_be_refused(made, "files")
}

fn must_be_refused(done: io::Result<()>, what: &str) -> io::Result<()> {
    match done {
        Err(error) if is_over(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::Error::other(format!(
            "a quota of {what} was set and did not hold"
        ))),
    }
}

fn is_over(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::DQUOT | Errno::NOSPC)
    )
}

/// The project id that new files in a directory inherit, if it has one.
pub fn project_of(directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    sys::project(directory)
}
