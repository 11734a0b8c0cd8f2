//! An exec's stdin.
//!
//! Bytes are counted over all calls, so that a repeated call writes nothing twice. Calls write one
//! after another; if one is dropped halfway, the bytes it has written stay counted.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::termios::{SpecialCodeIndex, tcgetattr};
use tokio::sync::{Mutex, watch};

use super::error::ExecError;
use super::stdio::Fd;

/// The end-of-file character of a terminal with default settings: ^D.
const END_OF_INPUT: u8 = 4;

pub struct Input {
    sink: Mutex<Sink>,
    accepted: AtomicU64,
    ended: watch::Sender<bool>,
}

struct Sink {
    /// `None` once closed.
    fd: Option<Fd>,
    is_terminal: bool,
    /// Whether the terminal has an unfinished input line.
    is_mid_line: bool,
}

impl Input {
    /// Writes to `fd`; without one, every write fails.
    pub fn new(fd: Option<Fd>, is_terminal: bool) -> Self {
        Self {
            sink: Mutex::new(Sink {
                fd,
                is_terminal,
                is_mid_line: false,
            }),
            accepted: AtomicU64::new(0),
            ended: watch::Sender::new(false),
        }
    }

    /// Bytes accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Writes the part of `data` that was not accepted yet, then closes stdin if `eof`.
    ///
    /// Returns once the bytes are in the pipe, or `StdinClosed` if they never will be.
    pub async fn write(&self, offset: u64, data: &[u8], eof: bool) -> Result<u64, ExecError> {
        let mut ended = self.ended.subscribe();
        let mut sink = self.sink.lock().await;
        let new = unaccepted(data, offset, self.accepted())?;
        if new.is_empty() && !eof {
            return Ok(self.accepted());
        }
        let written = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => {
                sink.fd = None;
                None
            }
            written = self.write_all(&mut sink, new, eof) => Some(written),
        };
        match written {
            Some(Ok(())) => Ok(self.accepted()),
            Some(Err(errno)) if errno != Errno::PIPE && errno != Errno::IO => Err(ExecError::Os {
                step: "write to stdin",
                errno,
            }),
            // Already closed and nothing to add: the requested state is reached.
            _ if new.is_empty() => Ok(self.accepted()),
            _ => Err(ExecError::StdinClosed {
                accepted: self.accepted(),
            }),
        }
    }

    /// Makes this and all later writes fail; wakes a waiting call.
    pub fn end(&self) {
        self.ended.send_replace(true);
        if let Ok(mut sink) = self.sink.try_lock() {
            sink.fd = None;
        }
    }

    async fn write_all(&self, sink: &mut Sink, data: &[u8], eof: bool) -> Result<(), Errno> {
        let fd = sink.fd.clone().ok_or(Errno::PIPE)?;
        let mut rest = data;
        while !rest.is_empty() {
            let count = write_some(&fd, rest).await?;
            self.accepted.fetch_add(count as u64, Ordering::Relaxed);
            sink.is_mid_line = rest[count - 1] != b'\n';
            rest = &rest[count..];
        }
        if eof {
            sink.close(&fd).await?;
        }
        Ok(())
    }
}

impl Sink {
    async fn close(&mut self, fd: &Fd) -> Result<(), Errno> {
        if self.is_terminal {
            let code = tcgetattr(fd.get_ref()).map_or(END_OF_INPUT, |modes| {
                modes.special_codes[SpecialCodeIndex::VEOF]
            });
            // In the middle of a line, the first ^D only flushes the line.
            let codes = [code; 2];
            let mut rest = &codes[usize::from(!self.is_mid_line)..];
            while !rest.is_empty() {
                rest = &rest[write_some(fd, rest).await?..];
            }
        }
        self.fd = None;
        Ok(())
    }
}

async fn write_some(fd: &Fd, data: &[u8]) -> Result<usize, Errno> {
    loop {
        let mut guard = fd.writable().await.map_err(|_| Errno::PIPE)?;
        let result = guard.try_io(|fd| {
            rustix::io::retry_on_intr(|| rustix::io::write(fd.get_ref(), data))
                .map_err(io::Error::from)
        });
        match result {
            Ok(result) => {
                return result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
            Err(_would_block) => {}
        }
    }
}

/// The part of `data` that was not accepted before.
fn unaccepted(data: &[u8], offset: u64, accepted: u64) -> Result<&[u8], ExecError> {
    let known = accepted
        .checked_sub(offset)
        .ok_or(ExecError::StdinGap { accepted })?;
    let known = usize::try_from(known).unwrap_or(usize::MAX).min(data.len());
    Ok(&data[known..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_accepted_are_skipped() {
        assert_eq!(unaccepted(b"abc", 0, 0).unwrap(), b"abc");
        assert_eq!(unaccepted(b"abc", 0, 2).unwrap(), b"c");
        assert_eq!(unaccepted(b"abc", 0, 9).unwrap(), b"");
        assert_eq!(unaccepted(b"abc", 9, 9).unwrap(), b"abc");
        assert!(unaccepted(b"abc", 10, 9).is_err());
        assert_eq!(unaccepted(b"abc", 0, u64::MAX).unwrap(), b"");
    }
}
