//! Makes the sockets, one after the other, on a thread that may wait.
//!
//! It is filtered like everybody else, so its own call asks the broker too, who knows it
//! by its thread. It holds nothing that the broker must let go of for it to end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, socket_with};
use rustix::thread::gettid;
use tokio::task::JoinHandle;

use super::limit;
use super::request::Request;

/// No thread has this number.
const NOBODY: u32 = 0;

/// Which thread is making a socket.
#[derive(Clone, Default)]
pub(crate) struct SocketFactory {
    tid: Arc<AtomicU32>,
}

impl SocketFactory {
    /// Whether a call is the factory's own. The thread lives until its call is answered, so no
    /// other can have its number meanwhile.
    pub(crate) fn is(&self, tid: u32) -> bool {
        tid != NOBODY && self.tid.load(Ordering::Acquire) == tid
    }

    /// Makes what was asked for, if there is room. Only one at a time: what is being made is
    /// not counted yet.
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

/// Where the kernel does not tell how many there are, there may be none.
fn has_room() -> bool {
    match (limit::sockets_now(), limit::sockets_max()) {
        (Ok(now), Ok(max)) => now < max,
        _ => false,
    }
}
