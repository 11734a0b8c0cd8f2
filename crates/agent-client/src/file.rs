//! Files beneath the agent's root.

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

/// A file, as stat tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Relative to the root.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When its content last changed, in nanoseconds.
    pub mtime_ns: i64,
    /// Changes whenever the content may have.
    pub etag: String,
    /// Of a symlink.
    pub target: Option<Vec<u8>>,
}

/// Kinds of files.
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
    /// In the order of their paths.
    pub entries: Vec<FileInfo>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<Vec<u8>>,
}

/// What must be true of a file for a change to go ahead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Nothing.
    #[default]
    Any,
    /// It has this etag.
    Matches(String),
    /// It does not exist.
    Absent,
}

/// How to write a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// What must be true of the file before.
    pub precondition: Precondition,
    /// Its permission bits, if not those of the file it replaces.
    pub mode: Option<u32>,
    /// Make missing directories.
    pub create_parents: bool,
    /// Add to the end instead of replacing.
    pub append: bool,
}

/// One step of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Read all of a file.
    Read {
        /// Which.
        path: Vec<u8>,
    },
    /// Write all of a file.
    Write {
        /// Which.
        path: Vec<u8>,
        /// With what.
        data: Bytes,
        /// How.
        options: WriteOptions,
    },
    /// Remove.
    Delete {
        /// Which.
        path: Vec<u8>,
        /// With all it holds.
        recursive: bool,
        /// What must be true of it.
        precondition: Precondition,
    },
    /// Rename.
    Move {
        /// From.
        path: Vec<u8>,
        /// To.
        dest: Vec<u8>,
        /// What must be true of the source.
        precondition: Precondition,
    },
    /// Duplicate.
    Copy {
        /// From.
        path: Vec<u8>,
        /// To.
        dest: Vec<u8>,
    },
    /// Make a directory and those above it.
    Mkdir {
        /// Which.
        path: Vec<u8>,
    },
}

/// How one step of a batch went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOutcome {
    /// What it is now.
    pub info: Option<FileInfo>,
    /// What a read found.
    pub data: Bytes,
}

impl Agent {
    /// Describes a file, or with `follow` what a symlink points to.
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
        // A listing that comes back to where it was would never end.
        if page
            .next_cursor
            .as_deref()
            .is_some_and(|next| Some(next) == cursor)
        {
            return Err(AgentError::Protocol("a listing makes no progress"));
        }
        Ok(page)
    }

    /// Removes a file or, with `recursive`, a tree; answers how many files went.
    pub async fn delete(
        &self,
        path: &[u8],
        recursive: bool,
        precondition: Precondition,
    ) -> Result<u64, AgentError> {
        let request = delete_request(path, recursive, precondition);
        Ok(self.calls().delete(request).await?.into_inner().removed)
    }

    /// Renames.
    pub async fn rename(
        &self,
        path: &[u8],
        dest: &[u8],
        overwrite: bool,
    ) -> Result<FileInfo, AgentError> {
        let request = move_request(path, dest, overwrite, Precondition::Any);
        FileInfo::parse(self.calls().r#move(request).await?.into_inner())
    }

    /// Duplicates a file or, with `recursive`, a tree.
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

    /// Makes a directory; with `parents` also those above it, and an existing one is
    /// fine.
    pub async fn mkdir(&self, path: &[u8], parents: bool) -> Result<FileInfo, AgentError> {
        let request = MkdirRequest {
            path: owned(path),
            mode: None,
            parents,
        };
        FileInfo::parse(self.calls().mkdir(request).await?.into_inner())
    }

    /// Does several operations, all or none of them if `atomic`. The outer error is
    /// of the batch as a whole, the inner ones of single operations.
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
