//! The files of the workspace.
//!
//! Guarantee: no path, symlink, archive or race leads to a file outside the root (`beneath`). Short
//! operations run on the calling thread, long ones on a blocking thread (`blocking`). One lock
//! serializes changes made through the agent, so that a checked precondition still holds when the
//! change is made; processes in the container do not take it. The host may replace the mount at the
//! root at any time (`mount`).

#![forbid(unsafe_code)]

mod batch;
mod beneath;
mod blocking;
mod chunks;
mod cleanup;
mod copy;
mod error;
mod etag;
mod export;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod import;
mod info;
mod journal;
mod list;
mod member;
mod merge;
mod merge_journal;
mod mount;
mod path;
mod precondition;
mod read;
mod release;
mod relocate;
mod stage;
mod staging;
mod temp;
mod tree;
mod walk;
mod write;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::{
    self, BatchReply, BatchRequest, CopyRequest, DeleteReply, DeleteRequest, ExportReply,
    ExportRequest, FileInfo, ImportReply, ImportRequest, ListReply, ListRequest, MkdirRequest,
    MoveRequest, ReadRequest, StatRequest, WriteHeader, WriteRequest,
};
use hotcell_disk_usage::Usage;
use rustix::io::Errno;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use self::batch::Batch;
use self::beneath::Beneath;
use self::blocking::Stop;
use self::copy::Copy;
use self::error::Error;
use self::export::Export;
use self::import::Import;
use self::info::describe_open;
use self::list::Listing;
use self::mount::Root;
use self::path::RelPath;
use self::read::FileReader;
use self::release::Releases;
use self::relocate::{Delete, Mkdir, Move};
use self::stage::{Direct, Stage as _};
use self::write::{Received, Write};

pub use self::cleanup::PendingCleanup;
pub use self::read::ReadStream;

/// Concurrent imports and exports: each occupies a thread.
const ARCHIVES_MAX: usize = 8;

/// The replies of an export.
pub type ExportStream = Pin<Box<dyn Stream<Item = Result<ExportReply, Status>> + Send>>;

/// The files beneath one directory.
#[derive(Clone, Debug)]
pub struct Files {
    root: Arc<Root>,
    root_path: Arc<[u8]>,
    changes: Arc<Mutex<()>>,
    archives: Arc<Semaphore>,
    releases: Releases,
}

impl Files {
    /// Serves the files beneath `root`, an absolute path; absolute paths of callers must start with
    /// it. Removes what an import of an earlier agent left behind.
    pub fn open(root: &Path) -> io::Result<Self> {
        let opened = Root::open(root)?;
        let changes = Arc::new(Mutex::new(()));
        staging::clear_leftovers(&opened.now().0, &changes);
        Ok(Self {
            root: Arc::new(opened),
            root_path: root.as_os_str().as_bytes().into(),
            changes,
            archives: Arc::new(Semaphore::new(ARCHIVES_MAX)),
            releases: Releases::new(),
        })
    }

    #[expect(
        clippy::unused_async,
        reason = "every call of the service looks the same"
    )]
    pub async fn stat(&self, request: StatRequest) -> Result<FileInfo, Status> {
        let path = RelPath::parse(&request.path, &self.root_path)?;
        let handle = self.root().handle(&path, request.follow)?;
        Ok(describe_open(path.as_bytes(), handle)?)
    }

    /// Disk usage of the files below the root.
    pub async fn usage(&self, files_max: u64) -> Result<Usage, Status> {
        let root = PathBuf::from(OsStr::from_bytes(&self.root_path));
        let measure = move |_: &Stop| {
            let usage = hotcell_disk_usage::measure(&root, files_max);
            usage.map_err(|error| Error::System {
                step: "measure the files",
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })
        };
        Ok(blocking::run(measure).await?)
    }

    /// One page of a directory or a tree.
    pub async fn list(&self, request: ListRequest) -> Result<ListReply, Status> {
        let listing = Listing::parse(&request, &self.root_path)?;
        let base = listing.base(&self.root())?;
        Ok(blocking::run(move |stop| listing.page(&base, stop)).await?)
    }

    #[expect(
        clippy::unused_async,
        reason = "every call of the service looks the same"
    )]
    pub async fn read(&self, request: ReadRequest) -> Result<ReadStream, Status> {
        let path = RelPath::parse(&request.path, &self.root_path)?;
        Ok(FileReader::open(&self.root(), &path)?.stream(request.offset, request.limit)?)
    }

    /// Writes a file. Dropping the future keeps the old file and leaves nothing behind.
    pub async fn write<S>(&self, mut requests: S) -> Result<FileInfo, Status>
    where
        S: Stream<Item = Result<WriteRequest, Status>> + Send + Unpin,
    {
        let write = Write::parse(&write_header(requests.next().await)?, &self.root_path)?;
        let mut stage = Direct::default();
        let location = write.locate(&self.root(), &mut stage)?;
        let mut received = Received::new();
        while let Some(data) = write_data(requests.next().await)? {
            received.take(data, &location.dir).await?;
        }
        received.settle(&location.dir).await?;
        let guard = self.lock().await;
        let old = self.releases.hold(&location);
        let is_long = write.is_long(&received);
        let finish = move |_: &Stop| {
            let _guard = guard;
            let info = write.finish(&location, received, &mut stage, false)?;
            stage.keep();
            Ok::<_, Error>(info)
        };
        let info = if is_long {
            blocking::run(finish).await
        } else {
            finish(&Stop::default())
        }?;
        old.release();
        Ok(info)
    }

    /// Removes a file or a tree.
    pub async fn delete(&self, request: DeleteRequest) -> Result<DeleteReply, Status> {
        let delete = Delete::parse(&request, &self.root_path)?;
        let guard = self.lock().await;
        let location = delete.locate(&self.root())?;
        let removed = if delete.is_long(&location)? {
            // Removing a tree is not atomic anyway, so other changes need not wait for it.
            drop(guard);
            blocking::run(move |stop| delete.apply(&location, &mut Direct::default(), stop)).await?
        } else {
            // Non-recursive: if the file was replaced by a tree meanwhile, it must not be walked on
            // this thread.
            let old = self.releases.hold(&location);
            let removed = Direct::default().discard(&location, false, &Stop::default())?;
            old.release();
            removed
        };
        Ok(DeleteReply { removed })
    }

    /// Moves a file or a directory.
    pub async fn r#move(&self, request: MoveRequest) -> Result<FileInfo, Status> {
        let request = Move::parse(&request, &self.root_path)?;
        let guard = self.lock().await;
        let root = self.root();
        let mut stage = Direct::default();
        match request.apply(&root, &mut stage, &Stop::default()) {
            Err(Error::OtherFilesystem) => {}
            moved => {
                stage.keep_if(moved.is_ok());
                return Ok(moved?);
            }
        }
        drop(stage);
        let copied = blocking::run(move |stop| {
            let _guard = guard;
            let mut stage = Direct::copying();
            let info = request.apply(&root, &mut stage, stop)?;
            stage.keep();
            Ok(info)
        });
        Ok(copied.await?)
    }

    /// Copies a file or a tree, atomically.
    pub async fn copy(&self, request: CopyRequest) -> Result<FileInfo, Status> {
        let copy = Copy::parse(&request, &self.root_path)?;
        let (root, changes) = (self.root(), Arc::clone(&self.changes));
        let copied = blocking::run(move |stop| {
            let mut stage = Direct::default();
            let made = copy.make(&root, &mut stage, stop)?;
            let _guard = changes.blocking_lock();
            let info = copy.finish(made, &mut stage)?;
            stage.keep();
            Ok(info)
        });
        Ok(copied.await?)
    }

    pub async fn mkdir(&self, request: MkdirRequest) -> Result<FileInfo, Status> {
        let mkdir = Mkdir::parse(&request, &self.root_path)?;
        let _guard = self.lock().await;
        let mut stage = Direct::default();
        let info = mkdir.apply(&self.root(), &mut stage)?;
        stage.keep();
        Ok(info)
    }

    /// Applies several operations; no other change happens in between.
    pub async fn batch(&self, request: BatchRequest) -> Result<BatchReply, Status> {
        let batch = Batch::parse(request, &self.root_path)?;
        let guard = self.lock().await;
        let root = self.root();
        let applied = blocking::run(move |stop| batch.apply(&root, stop, guard));
        Ok(applied.await?)
    }

    /// Unpacks an archive, all or nothing. If the future is dropped, the destination is unchanged.
    pub async fn import<S>(&self, mut requests: S) -> Result<ImportReply, Status>
    where
        S: Stream<Item = Result<ImportRequest, Status>> + Send + Unpin,
    {
        let permit = self.permit()?;
        let import = Import::parse(&import_header(requests.next().await)?, &self.root_path)?;
        let (sender, pieces) = mpsc::channel(import::AHEAD_PIECES_MAX);
        let (root, changes) = (self.root(), Arc::clone(&self.changes));
        let unpacked = blocking::run(move |stop| {
            let _permit = permit;
            import.unpack(&root, pieces, &changes, stop)
        });
        let pumped = import::pump(requests, sender);
        tokio::pin!(unpacked, pumped);
        tokio::select! {
            reply = &mut unpacked => Ok(reply?),
            // The thread's own error explains more than the failure to send to it.
            fed = &mut pumped => match unpacked.await {
                Err(error) if !matches!(error, Error::Cancelled) => Err(error.into()),
                unpacked => {
                    fed?;
                    Ok(unpacked?)
                }
            },
        }
    }

    /// Packs a file or a tree. Dropping the stream stops the packing.
    #[expect(
        clippy::unused_async,
        reason = "every call of the service looks the same"
    )]
    pub async fn export(&self, request: ExportRequest) -> Result<ExportStream, Status> {
        let permit = self.permit()?;
        let export = Export::open(&request, &self.root_path, &self.root())?;
        let (sender, receiver) = mpsc::channel(export::AHEAD_CHUNKS_MAX);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            export.pack(sender);
        });
        Ok(Box::pin(ReceiverStream::new(receiver)))
    }

    /// The root as it is mounted now. A newly mounted one may contain leftovers too.
    fn root(&self) -> Beneath {
        let (root, is_changed) = self.root.now();
        if is_changed {
            staging::clear_leftovers(&root, &self.changes);
        }
        root
    }

    async fn lock(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changes).lock_owned().await
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let permit = Arc::clone(&self.archives).try_acquire_owned();
        permit.map_err(|_| Error::Exhausted("too many archives are under way"))
    }
}

fn write_header(first: Option<Result<WriteRequest, Status>>) -> Result<WriteHeader, Status> {
    match first.transpose()?.and_then(|first| first.request) {
        Some(v1::write_request::Request::Header(header)) => Ok(header),
        _ => Err(Error::Invalid("the first message must carry the header").into()),
    }
}

/// The next chunk; `None` at the end of the upload.
fn write_data(next: Option<Result<WriteRequest, Status>>) -> Result<Option<bytes::Bytes>, Status> {
    use v1::write_request::Request;
    let gone = || Status::cancelled("the sender went away before the end");
    match next.ok_or_else(gone)??.request {
        Some(Request::Data(data)) if data.len() <= CHUNK_BYTES_MAX => Ok(Some(data)),
        Some(Request::Data(_)) => Err(Error::Invalid("a piece is too large").into()),
        Some(Request::End(true)) => Ok(None),
        Some(Request::Header(_) | Request::End(false)) | None => {
            Err(Error::Invalid("a piece has no data").into())
        }
    }
}

fn import_header(first: Option<Result<ImportRequest, Status>>) -> Result<v1::ImportHeader, Status> {
    match first.transpose()?.and_then(|first| first.request) {
        Some(v1::import_request::Request::Header(header)) => Ok(header),
        _ => Err(Error::Invalid("the first message must carry the header").into()),
    }
}
