//! Errors of queries, and how they are reported to callers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;

use crate::StoreError;
use crate::row::RowError;

/// The internal error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("{0} was deleted or replaced while the server uses it; put it back, or restart")]
    Gone(PathBuf),
    #[error("there is no {what} {id}")]
    Missing { what: &'static str, id: String },
    #[error("{0}")]
    Misuse(&'static str),
    #[error("the alias is taken")]
    AliasTaken,
    #[error("it was undone together with what failed beside it")]
    Undone,
    #[error("the query panicked")]
    Panicked,
}

/// An error in a form that can be reported to several callers.
#[derive(Debug, Clone)]
pub(crate) enum FaultReport {
    AliasTaken,
    Full,
    Failed(Arc<Fault>),
}

impl FaultReport {
    /// `directory` is the state directory.
    pub(super) fn new(fault: Fault, directory: &Path) -> Self {
        match fault {
            Fault::AliasTaken => Self::AliasTaken,
            Fault::Sql(error) if is_full(&error, directory) => Self::Full,
            Fault::Undone if is_without_room(directory) => Self::Full,
            other @ (Fault::Sql(_)
            | Fault::Row(_)
            | Fault::Gone(_)
            | Fault::Missing { .. }
            | Fault::Misuse(_)
            | Fault::Undone
            | Fault::Panicked) => Self::Failed(Arc::new(other)),
        }
    }

    pub(crate) fn during(self, step: &'static str) -> StoreError {
        match self {
            Self::AliasTaken => StoreError::AliasTaken,
            Self::Full => StoreError::Full,
            Self::Failed(fault) => StoreError::failed(step, fault),
        }
    }
}

impl Fault {
    pub(crate) fn missing(what: &'static str, id: &impl ToString) -> Self {
        let id = id.to_string();
        Self::Missing { what, id }
    }

    /// Whether a unique index other than a primary key was violated.
    pub(crate) fn is_duplicate(error: &rusqlite::Error) -> bool {
        let code = error.sqlite_error().map(|error| error.extended_code);
        code == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
    }
}

/// SQLite reports a file that could not grow as full, but a failed write to its shared memory as an
/// I/O error.
fn is_full(error: &rusqlite::Error, directory: &Path) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::SystemIoFailure) => is_without_room(directory),
        _ => false,
    }
}

fn is_without_room(directory: &Path) -> bool {
    rustix::fs::statvfs(directory).is_ok_and(|disk| disk.f_bavail == 0)
}
