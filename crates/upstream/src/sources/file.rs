//! Reading files that other programs wrote.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Larger files are refused; Claude Code keeps a history beside its servers.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The text of a file; `None` if there is none. The error says nothing of its content.
pub(super) fn read(path: &Path) -> Result<Option<String>, String> {
    // Without it, opening a pipe would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(format!("it could not be read ({})", error.kind())),
    };
    let metadata = file
        .metadata()
        .map_err(|error| format!("it could not be read ({})", error.kind()))?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it could not be read ({})", error.kind()))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| "it is not UTF-8".to_owned())
}
