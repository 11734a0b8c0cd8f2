//! Reads what an exec writes.
//!
//! If both streams are readable, the one that was not read last goes first.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hotcell_agent_api::v1::Stream;
use rustix::buffer::spare_capacity;
use rustix::io::ioctl_fionread;

use super::stdio::Fd;

/// The output streams of one exec.
pub(super) struct Outputs {
    sources: Vec<OutputSource>,
    /// Index of the stream to read first.
    next_index: usize,
}

/// A non-empty chunk of output.
pub struct Chunk {
    pub stream: Stream,
    pub data: Bytes,
}

struct OutputSource {
    stream: Stream,
    /// `None` after end of file.
    fd: Option<Fd>,
    /// How many bytes may still be read.
    left: u64,
    /// End instead of waiting when nothing is readable.
    only_present: bool,
}

impl Outputs {
    pub(super) fn new<const N: usize>(sources: [(Stream, Fd); N]) -> Self {
        let source = |(stream, fd)| OutputSource {
            stream,
            fd: Some(fd),
            left: u64::MAX,
            only_present: false,
        };
        Self {
            sources: sources.into_iter().map(source).collect(),
            next_index: 0,
        }
    }

    /// The next chunk, of at most `max` bytes; `None` when all streams have ended or reached their
    /// limit. Cancel-safe.
    pub(super) async fn next(&mut self, max: usize) -> Option<Chunk> {
        std::future::poll_fn(|cx| self.poll_next(cx, max)).await
    }

    /// From now on, reads only what is in the pipes at this moment, or less if another process
    /// reads it first: a writer can open its own pipe for reading.
    pub(super) fn limit_to_present(&mut self) {
        for source in &mut self.sources {
            let present = source.fd.as_ref().map(ioctl_fionread);
            source.left = present.and_then(Result::ok).unwrap_or(0);
            source.only_present = true;
        }
    }

    /// From now on, reads at most this many bytes per stream.
    pub(super) fn limit_to(&mut self, bytes: u64) {
        for source in &mut self.sources {
            source.left = bytes;
        }
    }

    /// Reads without a limit again.
    pub(super) fn lift_limit(&mut self) {
        for source in &mut self.sources {
            source.left = u64::MAX;
            source.only_present = false;
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Option<Chunk>> {
        let mut waiting = false;
        for step in 0..self.sources.len() {
            let index = (self.next_index + step) % self.sources.len();
            match self.sources[index].poll_read(cx, max) {
                Poll::Ready(Some(data)) => {
                    self.next_index = index + 1;
                    let stream = self.sources[index].stream;
                    return Poll::Ready(Some(Chunk { stream, data }));
                }
                Poll::Ready(None) => {}
                Poll::Pending => waiting = true,
            }
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(None)
        }
    }
}

impl OutputSource {
    fn poll_read(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Option<Bytes>> {
        let Some(fd) = self.fd.as_ref().filter(|_| self.left > 0) else {
            return Poll::Ready(None);
        };
        let max = usize::try_from(self.left).map_or(max, |left| left.min(max));
        if self.only_present {
            return Poll::Ready(self.read_present(max));
        }
        let data = loop {
            let Ok(mut guard) = ready!(fd.poll_read_ready(cx)) else {
                break Bytes::new();
            };
            match guard.try_io(|fd| read(fd.get_ref(), max)) {
                // A terminal whose other side is closed returns EIO: end of file.
                Ok(result) => break result.unwrap_or_default(),
                Err(_would_block) => {}
            }
        };
        if data.is_empty() {
            self.fd = None;
            return Poll::Ready(None);
        }
        self.left = self.left.saturating_sub(data.len() as u64);
        Poll::Ready(Some(data))
    }

    fn read_present(&mut self, max: usize) -> Option<Bytes> {
        let data = read(self.fd.as_ref()?.get_ref(), max).unwrap_or_default();
        self.left = self.left.saturating_sub(data.len() as u64);
        if data.is_empty() {
            self.left = 0;
        }
        (!data.is_empty()).then_some(data)
    }
}

/// Reads once. A small chunk is copied, so that it does not pin a large buffer.
fn read(fd: &impl std::os::fd::AsFd, max: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(max);
    rustix::io::retry_on_intr(|| rustix::io::read(fd, spare_capacity(&mut buffer)))?;
    if buffer.len() < buffer.capacity() / 2 {
        return Ok(Bytes::copy_from_slice(&buffer));
    }
    Ok(buffer.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::stdio::watch_nonblocking;
    use tokio::io::Interest;

    fn filled(byte: u8) -> Fd {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, &[byte; 4096]).unwrap();
        watch_nonblocking(read, Interest::READABLE).unwrap()
    }

    fn both() -> Outputs {
        Outputs::new([(Stream::Stdout, filled(1)), (Stream::Stderr, filled(2))])
    }

    #[tokio::test]
    async fn streams_take_turns() {
        let mut outputs = both();
        let mut order = Vec::new();
        while let Some(chunk) = outputs.next(1024).await {
            assert!(
                chunk
                    .data
                    .iter()
                    .all(|byte| i32::from(*byte) == chunk.stream as i32)
            );
            order.push(chunk.stream as i32);
        }
        assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2]);
    }

    #[tokio::test]
    async fn a_limit_keeps_what_comes_later_for_later() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"before").unwrap();
        let mut outputs = Outputs::new([(
            Stream::Stdout,
            watch_nonblocking(read, Interest::READABLE).unwrap(),
        )]);
        outputs.limit_to_present();
        rustix::io::write(&write, b"after").unwrap();
        assert_eq!(outputs.next(100).await.unwrap().data, "before");
        assert!(outputs.next(100).await.is_none());
        outputs.lift_limit();
        assert_eq!(outputs.next(100).await.unwrap().data, "after");
    }

    #[tokio::test]
    async fn what_somebody_else_has_taken_is_not_waited_for() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"before").unwrap();
        let thief = read.try_clone().unwrap();
        let mut outputs = Outputs::new([(
            Stream::Stdout,
            watch_nonblocking(read, Interest::READABLE).unwrap(),
        )]);
        outputs.limit_to_present();
        rustix::io::read(&thief, &mut [0; 100]).unwrap();
        assert!(outputs.next(100).await.is_none());
        outputs.lift_limit();
        rustix::io::write(&write, b"after").unwrap();
        assert_eq!(outputs.next(100).await.unwrap().data, "after");
    }

    #[tokio::test]
    async fn a_small_piece_does_not_hold_a_large_buffer() {
        let mut outputs = both();
        let chunk = outputs.next(1 << 20).await.unwrap();
        let data: Vec<u8> = chunk.data.into();
        assert_eq!((data.len(), data.capacity()), (4096, 4096));
    }
}
