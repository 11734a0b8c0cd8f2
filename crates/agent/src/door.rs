//! Whom the agent lets in where its socket has a name that every process inside can reach.
//!
//! ```text
//! connect ──▶ accept ──▶ porch: waiting for a knock ──▶ welcome ──▶ the protocol
//!                          └─ a knock of anybody else, or too many waiting ──▶ closed
//! ```
//!
//! The name is abstract: it cannot be unlinked, and nobody can take it while the agent
//! lives, so whoever connects reaches the agent. A knock is one byte that carries the
//! sender's credentials. The kernel fills them in, and a process without capabilities cannot
//! claim a user that it is not; the engine starts `hotcell-agent connect` as a user that
//! nothing else in the container can become. The credentials of the connection itself would do
//! on Linux, but gVisor answers that question with the asker's own.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;
use std::task::{Context, Poll};

use hotcell_agent_api::bounds::{DOOR_KNOCK, DOOR_WELCOME};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred, sendmsg, sockopt};
use rustix::process::{getgid, getpid, getuid};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::sys;

/// Connections that have not knocked yet. A further one sends the oldest away: one that
/// means well knocks as soon as it is connected.
const WAITING_MAX: usize = 16;

/// The address of a door.
pub fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Knocks: says who we are, by word of the kernel.
pub fn knock(socket: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmCredentials(UCred {
        pid: getpid(),
        uid: getuid(),
        gid: getgid(),
    }));
    let byte = [DOOR_KNOCK];
    sendmsg(
        socket,
        &[IoSlice::new(&byte)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Tells a guest that it is in; false if it has left.
pub fn welcome(stream: &UnixStream) -> bool {
    matches!(stream.try_write(&[DOOR_WELCOME]), Ok(1))
}

/// Where those wait who have connected and not knocked.
pub struct Porch {
    guest: u32,
    waiting: VecDeque<UnixStream>,
}

impl Porch {
    /// Lets in one user only.
    pub fn new(guest: u32) -> Self {
        Self {
            guest,
            waiting: VecDeque::new(),
        }
    }

    /// Takes somebody who has just connected.
    pub fn wait_for_knock(&mut self, stream: UnixStream) -> io::Result<()> {
        sockopt::set_socket_passcred(&stream, true)?;
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(stream);
        Ok(())
    }

    /// The next who knocked and is the guest; whoever else knocked is sent away.
    pub fn poll_known(&mut self, cx: &mut Context<'_>) -> Poll<UnixStream> {
        let mut at = 0;
        while let Some(stream) = self.waiting.get(at) {
            match poll_knock(stream, cx) {
                Poll::Pending => at += 1,
                Poll::Ready(uid) => {
                    let stream = self.waiting.remove(at);
                    if let Some(stream) = stream.filter(|_| uid == Some(self.guest)) {
                        return Poll::Ready(stream);
                    }
                }
            }
        }
        Poll::Pending
    }
}

/// Who knocked; `None` if it was no knock.
fn poll_knock(stream: &UnixStream, cx: &mut Context<'_>) -> Poll<Option<u32>> {
    loop {
        match stream.poll_read_ready(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) => return Poll::Ready(None),
            Poll::Ready(Ok(())) => {}
        }
        let receive = || Ok(sys::receive_with_uid(stream.as_fd())?);
        match stream.try_io(Interest::READABLE, receive) {
            Ok((Some(DOOR_KNOCK), uid)) => {
                let quiet = sockopt::set_socket_passcred(stream, false);
                return Poll::Ready(uid.filter(|_| quiet.is_ok()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return Poll::Ready(None),
        }
    }
}
