//! Where Hotcell keeps what must outlive a process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The state directory: as asked for, else the usual place for this user.
pub(crate) fn directory(asked: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(asked) = asked {
        return std::path::absolute(&asked).context("make the state directory's path absolute");
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/hotcell"));
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let state = state.context("neither XDG_STATE_HOME nor HOME is set; use --state-dir")?;
    Ok(state.join("hotcell"))
}

/// Where the server of a state directory listens for clients on this machine.
pub(crate) fn socket(directory: &Path) -> PathBuf {
    directory.join("hotcell.sock")
}
