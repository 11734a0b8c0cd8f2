//! Files in a container's workspace.
//!
//! Paths are resolved inside the container, beneath the root; here they are only bounded.
//! Every call is one call of the agent.

mod batch;
mod error;
mod path;
mod transfer;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use hotcell_agent_client::bounds::{GLOB_BYTES_MAX, GLOBS_MAX, LIST_ENTRIES_MAX, PATH_BYTES_MAX};
use hotcell_agent_client::{Agent, AgentError};
pub use hotcell_agent_client::{
    BatchOutcome, FileInfo, FileKind, Operation as FileOperation, Page, Precondition, WriteOptions,
};
use hotcell_domain::{Caller, ContainerRef};
use hotcell_ledger::Arguments;

pub use self::path::FilePath;
pub(crate) use self::path::WORKSPACE;
pub use self::transfer::{FileReader, FileWriter};

use self::error::{Effect, from_agent};
use self::transfer::Peer;
use crate::connection::{Connected, Connection};
use crate::container::LiveContainer;
use crate::disk::Writing;
use crate::{Action, Inner, Service, ServiceError};

/// Attempts at an idempotent call.
const ATTEMPTS_MAX: u32 = 2;

/// Options of a listing.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Include the contents of subdirectories.
    pub recursive: bool,
    /// Only paths that match this glob.
    pub glob: Option<String>,
    /// Most entries per page.
    pub limit: u32,
    /// The cursor that the previous page returned.
    pub cursor: Option<Vec<u8>>,
}

/// A call about one path.
struct Call<'a> {
    path: &'a FilePath,
    effect: Effect,
}

impl Service {
    /// Opens a file for reading from `offset`, at most `limit` bytes, or to its end.
    pub async fn file_read(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<(FileInfo, FileReader), ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsRead, target);
        operation.note(|arguments| {
            note_path(arguments, path);
            arguments.number("offset", offset);
        });
        let open = async {
            let container = inner.running_container(caller, target).await?;
            let read = async |agent: Agent| agent.read(path.for_agent(), offset, limit).await;
            call(&container, Call::reads(path), read).await
        };
        let (((info, bytes), way), operation) = operation.open(open).await?;
        let left = info.size.saturating_sub(offset);
        let expected = left.min(limit.unwrap_or(u64::MAX));
        let reader = FileReader::new(bytes, peer(way, path), operation, Some(expected));
        Ok((info, reader))
    }

    /// Writes a whole file.
    pub async fn file_write(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        data: Bytes,
        options: WriteOptions,
    ) -> Result<FileInfo, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsWrite, target);
        operation.count_bytes(data.len());
        operation.note(|arguments| {
            note_path(arguments, path);
            arguments.flag("append", options.append);
        });
        let write = async {
            let written = inner.write_file(caller, target, path, data, options);
            Ok(written.await?.0)
        };
        operation.run(write).await
    }

    /// Opens a file for writing piece by piece; it appears when the writer is finished.
    pub async fn file_writer(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        options: WriteOptions,
    ) -> Result<FileWriter<FileInfo>, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsWrite, target);
        operation.note(|arguments| {
            note_path(arguments, path);
            arguments.flag("append", options.append);
        });
        let open = inner.open_for_writing(caller, target);
        let ((way, writing), operation) = operation.open(open).await?;
        let bytes = way.1.agent.write(path.for_agent(), options);
        Ok(FileWriter::new(bytes, peer(way, path), writing, operation))
    }

    /// Removes a file, or a directory with its contents.
    pub async fn file_delete(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        recursive: bool,
        precondition: Precondition,
    ) -> Result<(), ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsDelete, target);
        operation.note(|arguments| {
            note_path(arguments, path);
            arguments.flag("recursive", recursive);
        });
        let delete = async |agent: Agent| {
            let precondition = precondition.clone();
            let removed = agent.delete(path.for_agent(), recursive, precondition);
            removed.await.map(drop)
        };
        let delete = async {
            let container = inner.running_container(caller, target).await?;
            let deleted = call(&container, Call::changes(path), delete).await;
            container.disk().may_write();
            deleted
        };
        operation.run(delete).await.map(drop)
    }

    /// Returns the metadata of a path; does not follow a symlink.
    pub async fn file_stat(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
    ) -> Result<FileInfo, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsStat, target);
        operation.note(|arguments| note_path(arguments, path));
        let stat = async {
            let container = inner.running_container(caller, target).await?;
            let stat = async |agent: Agent| agent.stat(path.for_agent(), false).await;
            Ok(call(&container, Call::reads(path), stat).await?.0)
        };
        operation.run(stat).await
    }

    /// Lists a directory, one page per call.
    pub async fn file_list(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        list: List,
    ) -> Result<Page, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsList, target);
        operation.note(|arguments| note_path(arguments, path));
        let page = async |agent: Agent| {
            let (glob, cursor) = (list.glob.as_deref(), list.cursor.as_deref());
            let path = path.for_agent();
            agent
                .list(path, list.recursive, glob, list.limit, cursor)
                .await
        };
        let list = async {
            list.check()?;
            let container = inner.running_container(caller, target).await?;
            Ok(call(&container, Call::reads(path), page).await?.0)
        };
        operation.run(list).await
    }

    /// Opens an uncompressed tar stream of a directory or a file.
    pub async fn file_export(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<FileReader, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsExport, target);
        operation.note(|arguments| note_path(arguments, path));
        let export = async |agent: Agent| agent.export(path.for_agent(), &include, &exclude).await;
        let open = async {
            check_globs(include.iter().chain(&exclude))?;
            let container = inner.running_container(caller, target).await?;
            call(&container, Call::reads(path), export).await
        };
        let ((bytes, way), operation) = operation.open(open).await?;
        Ok(FileReader::new(bytes, peer(way, path), operation, None))
    }

    /// Opens the upload of an uncompressed tar, which is unpacked below `dest`. Its result is the
    /// number of entries and bytes.
    pub async fn file_import(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        dest: &FilePath,
    ) -> Result<FileWriter<(u64, u64)>, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::FsImport, target);
        operation.note(|arguments| note_path(arguments, dest));
        let open = inner.open_for_writing(caller, target);
        let ((way, writing), operation) = operation.open(open).await?;
        let bytes = way.1.agent.import(dest.for_agent(), 0, 0);
        Ok(FileWriter::new(bytes, peer(way, dest), writing, operation))
    }
}

impl Inner {
    /// Writes a whole file; also returns the connection that was used.
    pub(crate) async fn write_file(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        data: Bytes,
        options: WriteOptions,
    ) -> Result<(FileInfo, Connected), ServiceError> {
        // Idempotent if it replaces the whole file unconditionally.
        let can_repeat = !options.append && options.precondition == Precondition::Any;
        let about = if can_repeat {
            Call::reads(path)
        } else {
            Call::changes(path)
        };
        let write = async |agent: Agent| {
            let (data, options) = (data.clone(), options.clone());
            agent.write_all(path.for_agent(), data, options).await
        };
        let container = self.running_container(caller, target).await?;
        self.environment.has_room()?;
        let writing = self.has_disk(&container).await?;
        let written = call(&container, about, write).await;
        let (info, (_, connected)) = written.map_err(|error| writing.explain(error))?;
        Ok((info, connected))
    }

    /// Writes the source of a snippet. As an exec may start, it may be written a little over the disk
    /// limit: it may be what deletes files.
    pub(crate) async fn write_source(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        path: &FilePath,
        source: Bytes,
    ) -> Result<Connected, ServiceError> {
        let container = self.running_container(caller, target).await?;
        self.environment.has_room()?;
        self.may_start(&container).await?;
        let writing = Writing::new(&container);
        let write = async |agent: Agent| {
            let options = WriteOptions::default();
            agent
                .write_all(path.for_agent(), source.clone(), options)
                .await
        };
        let written = call(&container, Call::reads(path), write).await;
        let (_, (_, connected)) = written.map_err(|error| writing.explain(error))?;
        Ok(connected)
    }

    /// A connection to a container that may be written to.
    async fn open_for_writing(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<(Way, Writing), ServiceError> {
        let container = self.running_container(caller, target).await?;
        self.environment.has_room()?;
        let writing = self.has_disk(&container).await?;
        let connection = container.connection();
        let connected = connection.get().await?;
        Ok(((connection, connected), writing))
    }
}

fn note_path(arguments: &mut Arguments, path: &FilePath) {
    arguments.text("path", &String::from_utf8_lossy(path.as_bytes()));
}

/// Makes an idempotent call.
pub(crate) async fn once<T, F>(
    container: &LiveContainer,
    path: &FilePath,
    make: impl Fn(Agent) -> F,
) -> Result<T, ServiceError>
where
    F: Future<Output = Result<T, AgentError>>,
{
    let (answer, _) = call(container, Call::reads(path), make).await?;
    Ok(answer)
}

/// Makes a call. A read-only one is repeated over a new connection if the first one is lost.
async fn call<T, F>(
    container: &LiveContainer,
    about: Call<'_>,
    make: impl Fn(Agent) -> F,
) -> Result<(T, Way), ServiceError>
where
    F: Future<Output = Result<T, AgentError>>,
{
    let mut attempt = 1;
    loop {
        let connection = container.connection();
        let connected = connection.get().await?;
        let error = match make(connected.agent.clone()).await {
            Ok(answer) => return Ok((answer, (connection, connected))),
            Err(error) => error,
        };
        connection.report(&connected, &error);
        let can_repeat = about.effect == Effect::None && attempt < ATTEMPTS_MAX;
        if error != AgentError::Lost || !can_repeat {
            return Err(from_agent(error, about.path.as_bytes(), about.effect));
        }
        attempt += 1;
    }
}

impl<'a> Call<'a> {
    fn reads(path: &'a FilePath) -> Self {
        let effect = Effect::None;
        Self { path, effect }
    }

    fn changes(path: &'a FilePath) -> Self {
        let effect = Effect::Unknown;
        Self { path, effect }
    }
}

impl List {
    fn check(&self) -> Result<(), ServiceError> {
        if !(1..=LIST_ENTRIES_MAX).contains(&self.limit) {
            return Err(invalid(format!("limit must be 1 to {LIST_ENTRIES_MAX}")));
        }
        let is_long = |cursor: &Vec<u8>| cursor.len() > PATH_BYTES_MAX || cursor.contains(&0);
        if self.cursor.as_ref().is_some_and(is_long) {
            return Err(invalid("cursor must be one that a listing answered".into()));
        }
        check_globs(self.glob.iter())
    }
}

fn check_globs<'a>(globs: impl Iterator<Item = &'a String>) -> Result<(), ServiceError> {
    let mut count = 0;
    for glob in globs {
        count += 1;
        if glob.is_empty() || glob.len() > GLOB_BYTES_MAX || glob.contains('\0') {
            return Err(invalid(format!(
                "a glob must have 1 to {GLOB_BYTES_MAX} bytes and no NUL"
            )));
        }
    }
    if count > GLOBS_MAX {
        return Err(invalid(format!("there may be {GLOBS_MAX} globs")));
    }
    Ok(())
}

fn invalid(reason: String) -> ServiceError {
    ServiceError::Invalid { reason }
}

/// The connection of a call, and where to report its error.
type Way = (Arc<Connection>, Connected);

fn peer((connection, connected): Way, path: &FilePath) -> Peer {
    Peer {
        connection,
        connected,
        path: path.as_bytes().to_vec(),
    }
}
