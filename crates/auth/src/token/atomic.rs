//! Files that are always whole: written beside their place and moved there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
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
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
