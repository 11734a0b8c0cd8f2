//! Answers seccomp notifications about netlink sockets, in order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::factory::SocketFactory;
use super::request::Request;
use crate::sys::{self, Notification, NotificationReply};

/// Calls that wait for their turn; another one fails. Each is a thread of the container, so there
/// are rarely more.
const WAITING_MAX: usize = 1024;

/// If it is dropped, every waiting call fails with `ENOSYS`.
pub(crate) struct NetlinkBroker {
    listener: AsyncFd<OwnedFd>,
    waiting: VecDeque<Request>,
    factory: SocketFactory,
    pending: Option<PendingSocket>,
}

/// A socket that the factory is creating.
struct PendingSocket {
    request: Request,
    made: JoinHandle<Result<OwnedFd, Errno>>,
}

impl NetlinkBroker {
    /// Takes a seccomp listener. Requires a tokio runtime.
    pub(crate) fn new(listener: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            listener: sys::watch(listener, Interest::READABLE)?,
            waiting: VecDeque::new(),
            factory: SocketFactory::default(),
            pending: None,
        })
    }

    /// Answers all calls. A failure to answer one is ignored: its caller may exit at any moment.
    pub(crate) async fn answer_for_ever(mut self) {
        loop {
            self.make_next();
            tokio::select! {
                (request, made) = finished(&mut self.pending) => self.hand_over(request, made),
                ready = self.listener.readable() => {
                    let Ok(mut ready) = ready else { return };
                    // No event is lost: the next wait reports readiness again.
                    if !is_readable(self.listener.as_fd()) {
                        ready.clear_ready();
                        continue;
                    }
                    drop(ready);
                    self.receive();
                }
            }
        }
    }

    fn make_next(&mut self) {
        if self.pending.is_none()
            && let Some(request) = self.waiting.pop_front()
        {
            let made = self.factory.make(request);
            self.pending = Some(PendingSocket { request, made });
        }
    }

    /// Receives one notification. The caller has checked that there is one, because the kernel
    /// would block otherwise. If the call is interrupted at this moment, the kernel returns
    /// `ENOENT`.
    fn receive(&mut self) {
        let Ok(call) = sys::receive_notification(self.listener.as_fd()) else {
            return;
        };
        if self.factory.is(call.tid) {
            return self.let_factory_go_on(&call);
        }
        match Request::parse(&call) {
            Ok(_) if self.waiting.len() >= WAITING_MAX => self.fail(call.id, Errno::NOBUFS),
            Ok(request) => self.waiting.push_back(request),
            Err(errno) => self.fail(call.id, errno),
        }
    }

    fn let_factory_go_on(&self, call: &Notification) {
        let listener = self.listener.as_fd();
        // Linux before 5.5 lacks this answer; then no socket is created, but nobody waits for ever
        // either.
        if sys::answer_notification(listener, call.id, NotificationReply::Continue).is_err() {
            self.fail(call.id, Errno::AFNOSUPPORT);
        }
    }

    fn hand_over(&self, request: Request, made: Result<OwnedFd, Errno>) {
        let given = made.and_then(|socket| give(self.listener.as_fd(), request, &socket));
        if let Err(errno) = given {
            self.fail(request.id, errno);
        }
    }

    fn fail(&self, id: u64, errno: Errno) {
        // Fails if the caller has exited, which is fine.
        let _ = sys::answer_notification(self.listener.as_fd(), id, NotificationReply::Fail(errno));
    }
}

/// Waits for the socket that is being created; pending for ever if there is none.
async fn finished(pending: &mut Option<PendingSocket>) -> (Request, Result<OwnedFd, Errno>) {
    let Some(PendingSocket { request, made }) = pending else {
        return std::future::pending().await;
    };
    let request = *request;
    let made = made.await.unwrap_or(Err(Errno::NOBUFS));
    *pending = None;
    (request, made)
}

/// Delivers the descriptor and the answer in one step. Before Linux 5.14 that takes two; a caller
/// that is interrupted in between gets a descriptor that it does not know of.
fn give(listener: BorrowedFd<'_>, request: Request, socket: &OwnedFd) -> Result<(), Errno> {
    let give = |answers| {
        let Request { id, is_cloexec, .. } = request;
        sys::give_to_notifier(listener, id, socket.as_fd(), is_cloexec, answers)
    };
    match give(true) {
        Err(Errno::INVAL) => {
            let number = give(false)?;
            sys::answer_notification(
                listener,
                request.id,
                NotificationReply::Return(number.into()),
            )
        }
        given => given.map(drop),
    }
}

fn is_readable(listener: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    let polled_now = poll(&mut polled, Some(&Timespec::default()));
    polled_now.is_ok() && polled[0].revents().contains(PollFlags::IN)
}
