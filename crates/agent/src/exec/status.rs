//! The agent's end of a keeper's status pipe.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;

use super::stdio::{Fd, watch_nonblocking};
use crate::process::{RECORD_BYTES, Record};

/// Records of a keeper, in order.
pub(super) struct Status(Fd);

impl Status {
    /// Creates the pipe; returns the keeper's end too.
    pub(super) fn open() -> Result<(Self, OwnedFd), Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(watch_nonblocking(read, Interest::READABLE)?), write))
    }

    /// The next record; `None` once the keeper has exited. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Record> {
        loop {
            let mut guard = self.0.readable().await.ok()?;
            if let Ok(result) = guard.try_io(|fd| read(fd.get_ref())) {
                return result.ok().flatten();
            }
        }
    }
}

fn read(pipe: &OwnedFd) -> io::Result<Option<Record>> {
    let mut bytes = [0; RECORD_BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut bytes))?;
    Ok((count == RECORD_BYTES)
        .then(|| Record::parse(&bytes))
        .flatten())
}
