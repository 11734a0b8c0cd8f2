//! File operations beneath the agent's root.

use bytes::Bytes;
use hotcell_agent_api::bounds::{BATCH_OPERATIONS_MAX, LIST_ENTRIES_MAX, PATH_BYTES_MAX};
use hotcell_agent_api::v1::batch_operation::Operation as WireOperation;
use hotcell_agent_api::v1::precondition::Precondition as WirePrecondition;
use hotcell_agent_api::v1::{
    self, BatchOperation, BatchRead, BatchRequest, BatchResult, BatchWrite, CopyRequest,
    DeleteRequest, ListReply, ListRequest, MkdirRequest, MoveRequest, StatRequest, WriteHeader,
};
use tonic::{Code, Status};

use crate::error::parse_etag;
use crate::{Agent, AgentError, AgentRefusal};

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Relative to the root.
    pub path: Vec<u8>,
    /// The type of file.
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When its content last changed, in nanoseconds.
    pub mtime_ns: i64,
    /// Changes whenever the content may have changed.
    pub etag: String,
    /// Where a symlink points.
    pub target: Option<Vec<u8>>,
}

/// Types of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a socket or a FIFO.
    Other,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In path order.
    pub entries: Vec<FileInfo>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<Vec<u8>>,
}

/// A condition on a file, checked before a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Always true.
    #[default]
    Any,
    /// The file has this etag.
    Matches(String),
    /// The file does not exist.
    Absent,
}

/// Options of a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Checked before the write.
    pub precondition: Precondition,
    /// Permission bits; `None`: those of the replaced file, or the default.
    pub mode: Option<u32>,
    /// Create missing parent directories.
    pub create_parents: bool,
    /// Append instead of replacing.
    pub append: bool,
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Read a whole file.
    Read {
        /// Relative to the root.
        path: Vec<u8>,
    },
    /// Write a whole file.
    Write {
        /// Relative to the root.
        path: Vec<u8>,
        /// The content.
        data: Bytes,
        /// As for a single write.
        options: WriteOptions,
    },
    /// Remove a file or a directory.
    Delete {
        /// Relative to the root.
        path: Vec<u8>,
        /// Remove a directory with its content.
        recursive: bool,
        /// Checked before the removal.
        precondition: Precondition,
    },
    /// Rename a file or a directory.
    Move {
        /// The source.
        path: Vec<u8>,
        /// The destination.
        dest: Vec<u8>,
        /// Checked on the source.
        precondition: Precondition,
    },
    /// Copy a file.
    Copy {
        /// The source.
        path: Vec<u8>,
        /// The destination.
        dest: Vec<u8>,
    },
    /// Create a directory and its missing parents.
    Mkdir {
        /// Relative to the root.
        path: Vec<u8>,
    },
}

/// The result of one operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The file after the operation; `None` after a delete.
    pub info: Option<FileInfo>,
    /// The content that a read returned.
    pub data: Bytes,
}

impl Agent {
    /// Metadata of a file; with `follow`, of a symlink's target.
    pub async fn stat(&self, path: &[u8], follow: bool) -> Result<FileInfo, AgentError> {
        let request = StatRequest {
            path: owned(path),
            follow,
        };
        FileInfo::parse(self.calls().stat(request).await?.into_inner())
    }

    /// Lists a directory, at most [`LIST_ENTRIES_MAX`] entries a page.
    pub async fn list(
        &self,
        path: &[u8],
        recursive: bool,
        glob: Option<&str>,
        limit: u32,
        cursor: Option<&[u8]>,
    ) -> Result<Page, AgentError> {
        let request = ListRequest {
            path: owned(path),
            recursive,
            glob: glob.unwrap_or_default().to_owned(),
            limit,
            cursor: owned(cursor.unwrap_or_default()),
        };
        let reply = self.calls().list(request).await?.into_inner();
        let page = Page::parse(reply, limit)?;
        // A cursor that does not advance would make the listing endless.
        if page
            .next_cursor
            .as_deref()
            .is_some_and(|next| Some(next) == cursor)
        {
            return Err(AgentError::Protocol("a listing makes no progress"));
        }
        Ok(page)
    }

    /// Removes a file or, with `recursive`, a tree; returns the number of entries removed.
    pub async fn delete(
        &self,
        path: &[u8],
        recursive: bool,
        precondition: Precondition,
    ) -> Result<u64, AgentError> {
        let request = delete_request(path, recursive, precondition);
        Ok(self.calls().delete(request).await?.into_inner().removed)
    }

    /// Moves a file or a directory.
    pub async fn rename(
        &self,
        path: &[u8],
        dest: &[u8],
        overwrite: bool,
    ) -> Result<FileInfo, AgentError> {
        let request = move_request(path, dest, overwrite, Precondition::Any);
        FileInfo::parse(self.calls().r#move(request).await?.into_inner())
    }

    /// Copies a file or, with `recursive`, a tree.
    pub async fn copy(
        &self,
        path: &[u8],
        dest: &[u8],
        overwrite: bool,
        recursive: bool,
    ) -> Result<FileInfo, AgentError> {
        let request = copy_request(path, dest, overwrite, recursive);
        FileInfo::parse(self.calls().copy(request).await?.into_inner())
    }

    /// Creates a directory. With `parents`, also creates its parents, and accepts an existing
    /// directory.
    pub async fn mkdir(&self, path: &[u8], parents: bool) -> Result<FileInfo, AgentError> {
        let request = MkdirRequest {
            path: owned(path),
            mode: None,
            parents,
        };
        FileInfo::parse(self.calls().mkdir(request).await?.into_inner())
    }

    /// Applies several operations, all or none of them if `atomic`. The outer error is about the
    /// whole batch, the inner ones are about single operations.
    pub async fn batch(
        &self,
        operations: Vec<Operation>,
        atomic: bool,
    ) -> Result<Vec<Result<BatchOutcome, AgentError>>, AgentError> {
        let count = operations.len();
        let operations = operations.into_iter().map(BatchOperation::from).collect();
        let reply = self
            .calls()
            .batch(BatchRequest { operations, atomic })
            .await?
            .into_inner();
        if reply.results.len() != count || count > BATCH_OPERATIONS_MAX {
            return Err(AgentError::Protocol(
                "a batch has not one result for each operation",
            ));
        }
        Ok(reply.results.into_iter().map(parse_result).collect())
    }
}

impl Page {
    pub(crate) fn parse(reply: ListReply, limit: u32) -> Result<Self, AgentError> {
        if reply.entries.len() > limit.min(LIST_ENTRIES_MAX) as usize {
            return Err(AgentError::Protocol("a page has too many entries"));
        }
        if reply.next_cursor.len() > PATH_BYTES_MAX {
            return Err(AgentError::Protocol("a cursor is over the bound"));
        }
        let entries = reply.entries.into_iter().map(FileInfo::parse);
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            next_cursor: Some(reply.next_cursor.to_vec()).filter(|cursor| !cursor.is_empty()),
        })
    }
}

pub(crate) fn parse_result(result: BatchResult) -> Result<BatchOutcome, AgentError> {
    let code = Code::from(i32::try_from(result.code).unwrap_or(-1));
    if code != Code::Ok {
        let mut error = AgentError::from(Status::new(code, result.message));
        if let AgentError::Refused {
            refusal: AgentRefusal::Conflict { current_etag },
            ..
        } = &mut error
        {
            *current_etag = parse_etag(result.current_etag).ok();
        }
        return Err(error);
    }
    let info = result.info.map(FileInfo::parse).transpose()?;
    Ok(BatchOutcome {
        info,
        data: result.data,
    })
}

impl FileInfo {
    pub(crate) fn parse(info: v1::FileInfo) -> Result<Self, AgentError> {
        let kind = match info.r#type() {
            v1::FileType::File => FileKind::File,
            v1::FileType::Directory => FileKind::Directory,
            v1::FileType::Symlink => FileKind::Symlink,
            v1::FileType::Other => FileKind::Other,
            v1::FileType::Unspecified => return Err(AgentError::Protocol("a file has no type")),
        };
        if info.path.len() > PATH_BYTES_MAX || info.target.len() > PATH_BYTES_MAX {
            return Err(AgentError::Protocol("a path is over the bound"));
        }
        if info.path.starts_with(b"/") || info.path.contains(&0) || info.target.contains(&0) {
            return Err(AgentError::Protocol("a path is absolute or has a NUL"));
        }
        Ok(Self {
            path: info.path.to_vec(),
            kind,
            size: info.size,
            mode: info.mode & 0o7777,
            mtime_ns: info.mtime_ns,
            etag: parse_etag(info.etag)?,
            target: (kind == FileKind::Symlink).then(|| info.target.to_vec()),
        })
    }
}

impl From<Operation> for BatchOperation {
    fn from(operation: Operation) -> Self {
        let operation = match operation {
            Operation::Read { path } => WireOperation::Read(BatchRead { path: path.into() }),
            Operation::Write {
                path,
                data,
                options,
            } => WireOperation::Write(BatchWrite {
                header: Some(write_header(&path, options)),
                data,
            }),
            Operation::Delete {
                path,
                recursive,
                precondition,
            } => WireOperation::Delete(delete_request(&path, recursive, precondition)),
            Operation::Move {
                path,
                dest,
                precondition,
            } => WireOperation::Move(move_request(&path, &dest, true, precondition)),
            Operation::Copy { path, dest } => {
                WireOperation::Copy(copy_request(&path, &dest, true, true))
            }
            Operation::Mkdir { path } => WireOperation::Mkdir(MkdirRequest {
                path: path.into(),
                mode: None,
                parents: true,
            }),
        };
        Self {
            operation: Some(operation),
        }
    }
}

impl From<Precondition> for Option<v1::Precondition> {
    fn from(precondition: Precondition) -> Self {
        let precondition = match precondition {
            Precondition::Any => return None,
            Precondition::Matches(etag) => WirePrecondition::IfMatch(etag),
            Precondition::Absent => WirePrecondition::IfAbsent(true),
        };
        Some(v1::Precondition {
            precondition: Some(precondition),
        })
    }
}

pub(crate) fn write_header(path: &[u8], options: WriteOptions) -> WriteHeader {
    WriteHeader {
        path: owned(path),
        precondition: options.precondition.into(),
        mode: options.mode,
        create_parents: options.create_parents,
        append: options.append,
    }
}

fn delete_request(path: &[u8], recursive: bool, precondition: Precondition) -> DeleteRequest {
    DeleteRequest {
        path: owned(path),
        recursive,
        precondition: precondition.into(),
    }
}

fn move_request(
    path: &[u8],
    dest: &[u8],
    overwrite: bool,
    precondition: Precondition,
) -> MoveRequest {
    MoveRequest {
        path: owned(path),
        dest_path: owned(dest),
        overwrite,
        create_parents: true,
        precondition: precondition.into(),
    }
}

fn copy_request(path: &[u8], dest: &[u8], overwrite: bool, recursive: bool) -> CopyRequest {
    CopyRequest {
        path: owned(path),
        dest_path: owned(dest),
        overwrite,
        create_parents: true,
        recursive,
    }
}

fn owned(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
