//! PID 1: one-time setup before the first connection, and shutdown.
//!
//! The agent handles only SIGCHLD and ignores all other signals, so that nothing in its container
//! can kill it. When `run` returns, the container ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, sockopt};
use rustix::process::{DumpableBehavior, Pid, set_child_subreaper, set_dumpable_behavior};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Listen, Options};
use crate::exec::Execs;
use crate::files::Files;
use crate::handshake;
use crate::netlink::NetlinkBroker;
use crate::privilege;
use crate::process::Table;
use crate::serve::{self, Connections, Incoming};
use crate::service::{AgentService, HelloInfo};
use crate::sys;

/// Descriptor number of the listening socket that the engine passes.
const LISTENER_FD: i32 = 3;

/// Descriptor number of the seccomp listener that the engine passes.
const NOTIFY_FD: i32 = 32;

/// Threads for file operations; each counts against the container's pids limit.
const FILE_THREADS_MAX: usize = 16;

/// Buffers of this size belong to the kernel as soon as they are freed. Chunks of streams are smaller.
const LARGE_BUFFER_BYTES: i32 = 128 << 10;

/// Prevents processes of the same user from tracing us or reading our memory.
pub(crate) fn deny_tracing() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Serves until the server shuts the agent down, or until it lingered without a connection.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    sys::ignore_signals();
    sys::return_large_buffers(LARGE_BUFFER_BYTES);
    if let Some((uid, gid)) = options.user {
        privilege::become_user(uid, gid)?;
        // Changing the user may have made us dumpable again.
        deny_tracing()?;
    }
    let notifications = match &options.filter {
        Some(path) => privilege::load_filter(path, options.has_own_kernel)?,
        None => inherited_notifications(),
    };
    let listener = match &options.listen {
        Listen::Inherited => inherited()?,
        Listen::Path(path) => listen(path)?,
        Listen::Abstract { name, .. } => UnixListener::bind_addr(&handshake::address(name)?)?,
    };
    listener.set_nonblocking(true)?;
    // PID 1 receives orphans anyway; an agent that is not PID 1 must become a subreaper.
    set_child_subreaper(Some(Pid::INIT))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS_MAX)
        .thread_keep_alive(Duration::MAX)
        .build()?;
    // Start one blocking thread now. If the container later uses up its pids limit, no thread can
    // be started, and a job without any thread would abort the agent; with one thread it waits.
    drop(runtime.spawn_blocking(|| ()));
    runtime.block_on(serve(options, listener, notifications))
}

async fn serve(
    options: &Options,
    listener: UnixListener,
    notifications: Option<OwnedFd>,
) -> io::Result<()> {
    if let Some(listener) = notifications {
        tokio::spawn(NetlinkBroker::new(listener)?.answer_for_ever());
    }
    let table = Table::default();
    tokio::spawn(table.clone().reap_for_ever(signal(SignalKind::child())?));
    let allowed_uid = match options.listen {
        Listen::Abstract { uid, .. } => Some(uid),
        Listen::Inherited | Listen::Path(_) => None,
    };
    // No exec may run as the user that is accepted as the server.
    let files = Files::open(Path::new(&options.root))?;
    let execs = Execs::new(table, allowed_uid, &options.root, files.clone());
    let execs = Arc::new(execs);
    let connections = Arc::new(Connections::default());
    let about = HelloInfo::new(&options.root, options.protocol_max)?;
    let service = AgentService::new(about, execs.clone(), files, connections.clone());
    let incoming = Incoming::new(listener, allowed_uid, &connections)?;
    let result = serve::serve(incoming, service, &connections, options.linger).await;
    // After a shutdown no exec is left; otherwise nobody is left to grant a grace period.
    execs.shut_down(Duration::ZERO).await;
    result
}

/// The seccomp listener that the engine passed, if any.
fn inherited_notifications() -> Option<OwnedFd> {
    let fd = sys::inherited_listener(NOTIFY_FD).ok()?;
    sys::is_seccomp_listener(fd.as_fd()).then_some(fd)
}

fn inherited() -> io::Result<UnixListener> {
    let fd = sys::inherited_listener(LISTENER_FD)?;
    let is_unix = sockopt::socket_domain(&fd)? == AddressFamily::UNIX;
    if !is_unix || !sockopt::socket_acceptconn(&fd)? {
        return Err(io::Error::other(
            "descriptor 3 is not a listening unix socket",
        ));
    }
    Ok(fd.into())
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}
