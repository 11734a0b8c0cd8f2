//! Authenticates connections where every process of the container can reach the socket.
//!
//! ```text
//! connect ──▶ accept ──▶ PendingPeers: waiting for the request ──▶ accepted ──▶ gRPC
//!                          └─ another user's request, or too many pending ──▶ closed
//! ```
//!
//! The socket's name is abstract: it cannot be unlinked, and nobody can take it while the
//! agent lives, so whoever connects reaches the agent. A request is one byte with the
//! sender's credentials attached. The kernel fills them in, and a process without
//! capabilities cannot claim a user that it is not; the engine starts `hotcell-agent connect`
//! as a user that nothing else in the container can become. `SO_PEERCRED` would do on Linux,
//! but gVisor answers it with the credentials of the process that asks.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;
use std::task::{Context, Poll};

use hotcell_agent_api::bounds::{HANDSHAKE_ACCEPTED, HANDSHAKE_REQUEST};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred, sendmsg, sockopt};
use rustix::process::{getgid, getpid, getuid};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::sys;

/// Connections that have not sent their request yet. A further one closes the oldest: an
/// honest peer sends its request as soon as it is connected.
const PENDING_MAX: usize = 16;

/// The abstract socket address `name`.
pub(crate) fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Sends the request with our own credentials, which the kernel verifies.
pub(crate) fn send_credentials(socket: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmCredentials(UCred {
        pid: getpid(),
        uid: getuid(),
        gid: getgid(),
    }));
    let byte = [HANDSHAKE_REQUEST];
    sendmsg(
        socket,
        &[IoSlice::new(&byte)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Tells the peer that it is accepted; false if it has disconnected.
pub(crate) fn confirm(stream: &UnixStream) -> bool {
    matches!(stream.try_write(&[HANDSHAKE_ACCEPTED]), Ok(1))
}

/// Connections whose user is not known yet.
pub(crate) struct PendingPeers {
    allowed_uid: u32,
    pending: VecDeque<UnixStream>,
}

impl PendingPeers {
    /// Accepts one user only.
    pub(crate) fn new(allowed_uid: u32) -> Self {
        Self {
            allowed_uid,
            pending: VecDeque::new(),
        }
    }

    /// Adds a new connection; closes the oldest if there are too many.
    pub(crate) fn add(&mut self, stream: UnixStream) -> io::Result<()> {
        sockopt::set_socket_passcred(&stream, true)?;
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back(stream);
        Ok(())
    }

    /// The next connection of the allowed user; those of other users are closed.
    pub(crate) fn poll_authenticated(&mut self, cx: &mut Context<'_>) -> Poll<UnixStream> {
        let mut at = 0;
        while let Some(stream) = self.pending.get(at) {
            match poll_request(stream, cx) {
                Poll::Pending => at += 1,
                Poll::Ready(uid) => {
                    let stream = self.pending.remove(at);
                    if let Some(stream) = stream.filter(|_| uid == Some(self.allowed_uid)) {
                        return Poll::Ready(stream);
                    }
                }
            }
        }
        Poll::Pending
    }
}

/// The user who sent the request; `None` if anything else was sent.
fn poll_request(stream: &UnixStream, cx: &mut Context<'_>) -> Poll<Option<u32>> {
    loop {
        match stream.poll_read_ready(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(None),
            Poll::Ready(Ok(())) => {}
        }
        let receive = || Ok(sys::receive_with_uid(stream.as_fd())?);
        match stream.try_io(Interest::READABLE, receive) {
            Ok((Some(HANDSHAKE_REQUEST), uid)) => {
                let quiet = sockopt::set_socket_passcred(stream, false);
                return Poll::Ready(uid.filter(|_| quiet.is_ok()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return Poll::Ready(None),
        }
    }
}
