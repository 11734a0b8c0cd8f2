//! Replaces files that people also edit: as a whole, so that a crash leaves the old one or the new one.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Replaces the file, with the mode that it had; a new one is its owner's alone. Makes its directory.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    replace_like(path, text, path)
}

/// The same, with the mode of another file.
pub(crate) fn replace_like(path: &Path, text: &str, like: &Path) -> Result<()> {
    // A link stays one.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().context("the file has no directory")?;
    // The parent of a bare file name is empty.
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    if let Ok(found) = fs::metadata(like) {
        file.as_file().set_permissions(found.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.persist(&path)?;
    Ok(())
}
