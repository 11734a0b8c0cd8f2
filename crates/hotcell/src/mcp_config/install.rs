//! Writes a client's file and undoes that.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::clients::Client;
use super::edit;
use super::node::Node;
use crate::whole_file;

/// Larger files are refused; Claude Code keeps a history beside its servers.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What the name of the backup ends with.
const BACKUP: &str = ".hotcell-backup";

/// What became of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It had this entry.
    Unchanged,
    /// There was none.
    Created,
    /// The entry was added or replaced, and there is a backup.
    Written,
    /// There is no entry to undo.
    Absent,
    /// It is as it was, apart from what others changed.
    Restored,
    /// It held nothing but the entry and is gone.
    Removed,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Created => "created",
            Self::Written => "written",
            Self::Absent => "absent",
            Self::Restored => "restored",
            Self::Removed => "removed",
        }
    }
}

/// Where the file as it was is kept.
pub(super) fn backup_of(file: &Path) -> PathBuf {
    let mut name: OsString = file.as_os_str().to_owned();
    name.push(BACKUP);
    PathBuf::from(name)
}

/// Adds or replaces the entry. Idempotent. On `Err` the file is as it was.
pub(super) fn write(client: &Client, file: &Path, name: &str, entry: &Node) -> Result<Outcome> {
    let shown = file.display();
    let before = read(file).with_context(|| format!("read {shown}"))?;
    let text = before.as_deref().unwrap_or_default();
    let after = edit::with_entry(client, text, name, entry);
    let after = after.with_context(|| {
        format!(
            "could not edit {shown}; add what `hotcell mcp-config --client {}` prints by hand",
            client.name
        )
    })?;
    if before.as_deref() == Some(after.as_str()) {
        return Ok(Outcome::Unchanged);
    }
    // A backup of an earlier time would be put back by `undo`.
    let backup = backup_of(file);
    match &before {
        Some(before) => whole_file::replace_like(&backup, before, file),
        None => remove_if_there(&backup).map_err(Into::into),
    }
    .with_context(|| format!("write {}", backup.display()))?;
    whole_file::replace(file, &after).with_context(|| format!("write {shown}"))?;
    Ok(if before.is_some() {
        Outcome::Written
    } else {
        Outcome::Created
    })
}

/// Undoes the last [`write()`]; what others have changed since stays. Idempotent.
pub(super) fn undo(client: &Client, file: &Path, name: &str) -> Result<Outcome> {
    let shown = file.display();
    let backup_path = backup_of(file);
    let text = read(file).with_context(|| format!("read {shown}"))?;
    let backup = read(&backup_path).with_context(|| format!("read {}", backup_path.display()))?;
    let Some(text) = text else {
        return Ok(Outcome::Absent);
    };
    if !edit::has_entry(client, &text, name).with_context(|| format!("read {shown}"))? {
        return Ok(Outcome::Absent);
    }
    let after = edit::without_entry(client, &text, backup.as_deref(), name);
    let outcome = if let Some(after) = after.with_context(|| format!("could not edit {shown}"))? {
        whole_file::replace(file, &after).with_context(|| format!("write {shown}"))?;
        Outcome::Restored
    } else {
        fs::remove_file(file).with_context(|| format!("remove {shown}"))?;
        Outcome::Removed
    };
    remove_if_there(&backup_path).with_context(|| format!("remove {}", backup_path.display()))?;
    Ok(outcome)
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata()?;
    ensure!(found.is_file(), "it is not a file");
    ensure!(
        found.len() <= FILE_BYTES_MAX,
        "it is larger than {FILE_BYTES_MAX} bytes"
    );
    let mut text = String::new();
    file.by_ref()
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(Some(text))
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
