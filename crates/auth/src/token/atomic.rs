//! Atomic file replacement: files are written under a temporary name and renamed. They get the
//! owner of their directory: if root runs the command for a server of another user, that server
//! must be able to read the token file; otherwise it would continue to accept revoked tokens.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// Only the server's user may read these files.
pub(super) const MODE: u32 = 0o600;

/// Replaces the content of a file and syncs it. The caller ensures that nobody else writes the file
/// at the same time. On `Err` the old content is unchanged.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE);
    let mut file = options.open(&beside)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let directory = File::open(directory)?;
    give(&file, &directory)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    directory.sync_all()
}

/// Gives a file the owner of its directory.
pub(super) fn give(file: &File, directory: &File) -> io::Result<()> {
    let (owner, ours) = (directory.metadata()?, file.metadata()?);
    if owner.uid() == ours.uid() {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}
