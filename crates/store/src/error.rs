//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The cause of an error.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not be opened. Existing files are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server uses it.
    #[error(
        "another Hotcell server{} uses {}; stop it, or choose another --state-dir",
        .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(),
        .directory.display()
    )]
    Locked {
        /// The state directory.
        directory: PathBuf,
        /// The process id of that server, if known.
        pid: Option<u32>,
    },
    /// A newer version of Hotcell created it.
    #[error(
        "the database in {} was made by a newer Hotcell (its schema is {found}, this program knows {known}); use that one, or another --state-dir",
        .directory.display()
    )]
    Newer {
        /// The state directory.
        directory: PathBuf,
        /// Its schema version.
        found: u32,
        /// The newest schema that this program supports.
        known: u32,
    },
    /// Not a database, or a damaged one.
    #[error(
        "the database {} is damaged; nothing in it was changed. Move it aside to start afresh (containers that run are adopted), or restore a copy",
        .path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// SQLite's error.
        source: Source,
    },
    /// A disk or permission error.
    #[error("could not {step} in {}", .directory.display())]
    Io {
        /// Completes "could not … in".
        step: &'static str,
        /// The state directory.
        directory: PathBuf,
        /// The system's error.
        source: Source,
    },
}

/// Why a query failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another active container of this principal has the alias.
    #[error("the alias is taken")]
    AliasTaken,
    /// The disk is full.
    #[error("the disk that holds the state directory is full")]
    Full,
    /// The query queue is full, or the database thread is gone.
    #[error("the store does not answer")]
    Unavailable,
    /// The database or the disk failed.
    #[error("could not {step}")]
    Failed {
        /// Completes "could not …".
        step: &'static str,
        /// The underlying error.
        source: Source,
    },
}

impl OpenError {
    pub(crate) fn io(step: &'static str, directory: &Path, source: impl Into<Source>) -> Self {
        Self::Io {
            step,
            directory: directory.to_owned(),
            source: source.into(),
        }
    }
}

impl StoreError {
    /// Converts an I/O error; recognizes a full disk.
    pub(crate) fn io(step: &'static str, source: io::Error) -> Self {
        let full = [Errno::NOSPC, Errno::DQUOT].map(|errno| Some(errno.raw_os_error()));
        if full.contains(&source.raw_os_error()) {
            return Self::Full;
        }
        Self::failed(step, source)
    }

    pub(crate) fn failed(step: &'static str, source: impl Into<Source>) -> Self {
        Self::Failed {
            step,
            source: source.into(),
        }
    }
}
