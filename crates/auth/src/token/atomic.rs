//! Files that are always whole: written beside their place and moved there. They belong to whom
//! their directory belongs to: root may run the command of a server that runs as another user,
//! which could not read the file of tokens otherwise, and would go on with revoked ones.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// Only the server's user may read what is written here.
pub(super) const MODE: u32 = 0o600;

/// Puts `content` in place of the file, and on disk. The caller makes sure that nobody else
/// writes the same file now. On `Err` the old content is there.
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

/// Gives a file to the owner of its directory.
pub(super) fn give(file: &File, directory: &File) -> io::Result<()> {
    let (owner, ours) = (directory.metadata()?, file.metadata()?);
    if owner.uid() == ours.uid() {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}
