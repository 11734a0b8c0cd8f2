//! The agent's end of a keeper's status pipe.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;

use super::stdio::{Fd, watch_nonblocking};
use crate::process::{RECORD_BYTES, Record};

/// Records of a keeper, in order.
pub(crate) struct Status {
    pipe: Fd,
    /// A record to return before anything is read from the pipe.
    first: Option<Record>,
}

impl Status {
    /// Creates the pipe; returns the keeper's end too.
    pub(crate) fn open() -> Result<(Self, OwnedFd), Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let pipe = watch_nonblocking(read, Interest::READABLE)?;
        Ok((Self { pipe, first: None }, write))
    }

    /// Returns `first` before the records in the pipe.
    pub(crate) fn after(self, first: Record) -> Self {
        Self {
            first: Some(first),
            ..self
        }
    }

    /// The next record; `None` once the keeper has exited. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Record> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let mut guard = self.pipe.readable().await.ok()?;
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
