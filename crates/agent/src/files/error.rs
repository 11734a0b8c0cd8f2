//! File errors and their gRPC statuses.
//!
//! Messages contain no path: the caller knows which one it asked for, and names that were chosen
//! inside the container must not be repeated.

use hotcell_agent_api::bounds::{
    BATCH_CODE_METADATA_KEY, BATCH_INDEX_METADATA_KEY, BATCH_PARTIAL_METADATA_KEY,
    ETAG_METADATA_KEY,
};
use rustix::io::Errno;
use tonic::{Code, Status};

/// Why a file operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("could not {step}: {}", in_words(*errno))]
    System {
        /// Completes "could not …".
        step: &'static str,
        errno: Errno,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The path leaves the root, or the file is protected.
    #[error("{0}")]
    Denied(&'static str),
    /// A rename would cross a mount, or a layer of an overlay.
    #[error("it lies on another filesystem and was not copied")]
    OtherFilesystem,
    /// The path names the wrong type of file.
    #[error("{0}")]
    WrongKind(&'static str),
    #[error("the file exists")]
    Exists {
        /// The current etag.
        etag: String,
    },
    /// The etag does not match.
    #[error("the file has changed or is gone")]
    Changed {
        /// The current etag, if the file exists.
        etag: Option<String>,
    },
    /// A bound was reached.
    #[error("{0}")]
    Exhausted(&'static str),
    /// The archive is invalid or forbidden.
    #[error("the archive was refused: {0}")]
    Archive(&'static str),
    /// The caller has disconnected.
    #[error("the call was given up")]
    Cancelled,
    /// An import failed, and undoing it failed too.
    #[error("{source}; the import was undone only in part, and the rest lies in {staging}")]
    HalfImported {
        source: Box<Error>,
        /// The directory, relative to the root, that contains the displaced files.
        staging: String,
    },
    /// An operation of a batch failed or is invalid; nothing was changed.
    #[error("{source}")]
    Undone {
        /// From 0.
        index: usize,
        source: Box<Error>,
    },
    /// An operation of an atomic batch failed, and undoing the others failed too.
    #[error("{source}; the batch was undone only in part, and the rest lies in {staging}")]
    HalfUndone {
        /// From 0.
        index: usize,
        source: Box<Error>,
        /// The directory, relative to the root, that contains the displaced files.
        staging: String,
    },
}

impl Error {
    /// The matching gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::System { errno, .. } => errno_code(*errno),
            Self::Invalid(_) | Self::Archive(_) => Code::InvalidArgument,
            Self::Denied(_) => Code::PermissionDenied,
            Self::WrongKind(_) | Self::Changed { .. } | Self::OtherFilesystem => {
                Code::FailedPrecondition
            }
            Self::Exists { .. } => Code::AlreadyExists,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::Cancelled => Code::Cancelled,
            Self::Undone { .. } | Self::HalfUndone { .. } | Self::HalfImported { .. } => {
                Code::Aborted
            }
        }
    }

    /// The current etag, if a precondition failed and the file exists.
    pub fn current_etag(&self) -> Option<&str> {
        match self {
            Self::Exists { etag } => Some(etag),
            Self::Changed { etag } => etag.as_deref(),
            Self::Undone { source, .. }
            | Self::HalfUndone { source, .. }
            | Self::HalfImported { source, .. } => source.current_etag(),
            Self::System { .. }
            | Self::Invalid(_)
            | Self::Denied(_)
            | Self::WrongKind(_)
            | Self::OtherFilesystem
            | Self::Exhausted(_)
            | Self::Archive(_)
            | Self::Cancelled => None,
        }
    }

    /// Translates the error of a rename or link. EXDEV means another mount here, whereas openat2
    /// uses it for a path that leaves the root.
    pub(super) fn of_rename(step: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::XDEV => Self::OtherFilesystem,
            errno => Self::System { step, errno },
        }
    }

    pub fn is_errno(&self, wanted: Errno) -> bool {
        matches!(self, Self::System { errno, .. } if *errno == wanted)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut status = Self::new(error.code(), error.to_string());
        if let Some(etag) = error.current_etag().and_then(|etag| etag.parse().ok()) {
            status.metadata_mut().insert(ETAG_METADATA_KEY, etag);
        }
        if let Error::Undone { index, source } | Error::HalfUndone { index, source, .. } = &error {
            let code = source.code() as i32;
            let metadata = status.metadata_mut();
            metadata.insert(BATCH_INDEX_METADATA_KEY, (*index as u64).into());
            metadata.insert(BATCH_CODE_METADATA_KEY, code.into());
            if matches!(error, Error::HalfUndone { .. }) {
                metadata.insert(BATCH_PARTIAL_METADATA_KEY, 1.into());
            }
        }
        status
    }
}

/// Adds the name of the failed step to a result.
pub(super) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, Error>;
}

impl<T> Step<T> for rustix::io::Result<T> {
    fn step(self, step: &'static str) -> Result<T, Error> {
        self.map_err(|errno| Error::System { step, errno })
    }
}

fn errno_code(errno: Errno) -> Code {
    match errno {
        Errno::NOENT => Code::NotFound,
        Errno::EXIST => Code::AlreadyExists,
        // openat2 returns EXDEV when a path leaves the root.
        Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::PermissionDenied,
        Errno::NOTDIR
        | Errno::ISDIR
        | Errno::NOTEMPTY
        | Errno::NXIO
        | Errno::LOOP
        | Errno::BUSY
        | Errno::AGAIN
        | Errno::TXTBSY => Code::FailedPrecondition,
        Errno::NAMETOOLONG | Errno::INVAL => Code::InvalidArgument,
        Errno::NOSPC
        | Errno::DQUOT
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::FBIG
        | Errno::MLINK => Code::ResourceExhausted,
        _ => Code::Internal,
    }
}

/// Describes an errno for the caller of a file operation.
fn in_words(errno: Errno) -> String {
    let known = [
        (Errno::NOENT, "there is no such file or directory"),
        (Errno::EXIST, "it exists already"),
        (Errno::XDEV, "the path leads out of the root"),
        (Errno::ACCESS, "permission denied"),
        (Errno::PERM, "operation not permitted"),
        (Errno::ROFS, "it is read-only"),
        (Errno::NOTDIR, "a part of the path is not a directory"),
        (Errno::ISDIR, "it is a directory"),
        (Errno::NOTEMPTY, "the directory is not empty"),
        (Errno::NXIO, "nobody is at the other end of it"),
        (Errno::LOOP, "too many symbolic links"),
        (Errno::BUSY, "it is in use"),
        (Errno::AGAIN, "it changed meanwhile"),
        (Errno::NAMETOOLONG, "a name is too long"),
        (Errno::INVAL, "the kernel refuses such an argument"),
        (Errno::NOSPC, "the disk is full"),
        (Errno::DQUOT, "the disk quota is used up"),
        (Errno::MFILE, "too many open files"),
        (Errno::NFILE, "too many open files on this host"),
        (Errno::NOMEM, "memory ran out"),
        (Errno::FBIG, "the file would be too large"),
        (Errno::MLINK, "it has too many links"),
        (Errno::TXTBSY, "it is a program that runs"),
        (Errno::IO, "the disk failed"),
        (Errno::NOSYS, "the kernel cannot do it"),
        (Errno::OPNOTSUPP, "the filesystem cannot do it"),
        (Errno::STALE, "it is gone from the server that held it"),
    ];
    known.iter().find(|(each, _)| *each == errno).map_or_else(
        || format!("errno {}", errno.raw_os_error()),
        |(_, words)| (*words).to_owned(),
    )
}
