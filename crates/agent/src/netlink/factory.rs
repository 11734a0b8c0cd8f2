//! Creates the sockets, one at a time, on a blocking thread.
//!
//! That thread is filtered like all others, so its own call is sent to the broker too, which
//! recognizes it by its thread id. The thread holds nothing that the broker would have to release
//! first.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, socket_with};
use rustix::thread::gettid;
use tokio::task::JoinHandle;

use super::limit;
use super::request::Request;

/// A thread id that no thread has.
const NOBODY: u32 = 0;

/// The thread that is creating a socket.
#[derive(Clone, Default)]
pub(crate) struct SocketFactory {
    tid: Arc<AtomicU32>,
}

impl SocketFactory {
    /// Whether a call is the factory's own. Its thread exists until the call is answered, so the id
    /// cannot be reused meanwhile.
    pub(crate) fn is(&self, tid: u32) -> bool {
        tid != NOBODY && self.tid.load(Ordering::Acquire) == tid
    }

    /// Creates the socket if the limit allows it. Call this for one at a time: a socket that is
    /// being created is not counted yet.
    pub(crate) fn make(&self, request: Request) -> JoinHandle<Result<OwnedFd, Errno>> {
        let factory = self.clone();
        tokio::task::spawn_blocking(move || {
            if !has_room() {
                return Err(Errno::NOBUFS);
            }
            let tid = gettid().as_raw_nonzero().get().cast_unsigned();
            factory.tid.store(tid, Ordering::Release);
            let (kind, flags) = (request.kind, request.creation_flags());
            let made = retry_on_intr(|| socket_with(AddressFamily::NETLINK, kind, flags, None));
            factory.tid.store(NOBODY, Ordering::Release);
            made
        })
    }
}

/// False if the kernel does not report the number of sockets.
fn has_room() -> bool {
    match (limit::sockets_now(), limit::sockets_max()) {
        (Ok(now), Ok(max)) => now < max,
        _ => false,
    }
}
