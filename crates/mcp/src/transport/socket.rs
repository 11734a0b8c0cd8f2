//! MCP on a unix socket that only its owner can open: for our own commands, and for a second stdio
//! server on the same state. Each connection is served like stdio, unless it carries bytes (`raw`).

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::Caller;
use rmcp::ServerHandler;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::limits::{REQUESTS_PER_CONNECTION_MAX, SOCKET_CONNECTIONS_MAX, SOCKET_UNREAD_MAX};
use super::raw::{self, First, RawStreams};
use super::stdio::serve_lines;
use super::write_timeout::WriteTimeout;

const BACKLOG: u32 = 64;

/// The pause after a failed accept, for example when out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path_in_directory: SocketPath,
    inode: u64,
    clients: TaskTracker,
}

impl Socket {
    /// Binds a socket at `path`, replacing one that an earlier server left. The caller must ensure
    /// that no other server uses the path.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let path_in_directory = SocketPath::open(path)?;
        let path = path_in_directory.path.as_path();
        remove_stale(path)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        // Nobody can connect before it listens, so the wider mode is never usable.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let inode = std::fs::symlink_metadata(path)?.ino();
        let listener = socket.listen(BACKLOG)?;
        Ok(Self {
            listener,
            path_in_directory,
            inode,
            clients: TaskTracker::new(),
        })
    }

    /// Connects to the server whose socket is at `path`.
    pub async fn connect(path: &Path) -> io::Result<UnixStream> {
        UnixStream::connect(&SocketPath::open(path)?.path).await
    }

    /// Tracks the connections. To wait until there are none, close it and wait.
    pub fn clients(&self) -> TaskTracker {
        self.clients.clone()
    }

    /// Serves until told to stop, then until the last client is gone or has been cut off. A client
    /// is identified by its user id, which the kernel reports.
    pub async fn serve<H: ServerHandler + Clone>(
        self,
        handler: H,
        raw: impl RawStreams,
        caller_of_uid: impl Fn(u32) -> Caller,
        stop: CancellationToken,
    ) {
        let permits = Arc::new(Semaphore::new(SOCKET_CONNECTIONS_MAX));
        let clients = self.clients();
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            match (accepted, Arc::clone(&permits).try_acquire_owned()) {
                (Ok((stream, _)), Ok(permit)) => {
                    let caller = match stream.peer_cred() {
                        Ok(peer) => caller_of_uid(peer.uid()),
                        Err(error) => {
                            tracing::warn!(%error, "could not tell who a client on the unix socket is");
                            continue;
                        }
                    };
                    let served =
                        serve_client((handler.clone(), raw.clone()), caller, stream, stop.clone());
                    clients.spawn(async move {
                        served.await;
                        drop(permit);
                    });
                }
                (Ok(_), Err(_)) => tracing::warn!("too many clients on the unix socket"),
                (Err(error), _) => {
                    tracing::warn!(%error, "could not accept a client on the unix socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        clients.close();
        clients.wait().await;
    }
}

async fn serve_client<H: ServerHandler>(
    (handler, raw): (H, impl RawStreams),
    caller: Caller,
    mut stream: UnixStream,
    stop: CancellationToken,
) {
    let first = stop.run_until_cancelled(raw::first(&mut stream)).await;
    let byte = match first {
        Some(Ok(Some(First::Message(byte)))) => byte,
        Some(Ok(Some(First::Raw))) => {
            let served = serve_raw(&raw, caller, stream);
            stop.run_until_cancelled(served).await;
            return;
        }
        Some(Ok(None) | Err(_)) | None => return,
    };
    let (read, write) = stream.into_split();
    let read = io::Cursor::new([byte]).chain(read);
    let write = WriteTimeout::new(write, SOCKET_UNREAD_MAX);
    let requests = Arc::new(Semaphore::new(REQUESTS_PER_CONNECTION_MAX));
    if let Err(error) = serve_lines(handler, Some(caller), (read, write), requests, stop).await {
        tracing::debug!(%error, "a client of the unix socket went wrong");
    }
}

async fn serve_raw(raw: &impl RawStreams, caller: Caller, mut stream: UnixStream) {
    if let Ok(Some(wanted)) = raw::wanted(&mut stream).await {
        raw.serve(caller, wanted, stream).await;
    } else {
        tracing::debug!("a client of the unix socket speaks neither MCP nor ours");
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours = |found: std::fs::Metadata| found.ino() == self.inode;
        if std::fs::symlink_metadata(&self.path_in_directory.path).is_ok_and(is_ours) {
            let _ = std::fs::remove_file(&self.path_in_directory.path);
        }
    }
}

/// The path of a socket in a form that fits into a socket address, which has only 108 bytes.
#[derive(Debug)]
struct SocketPath {
    /// Relative to the directory that we hold open.
    path: PathBuf,
    _directory: File,
}

impl SocketPath {
    fn open(path: &Path) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = File::open(directory)?;
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        path.push(name);
        Ok(Self {
            path,
            _directory: directory,
        })
    }
}

/// Removes a socket; refuses to remove any other file.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is something that is not a socket",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
