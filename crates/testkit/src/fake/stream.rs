//! A stream that is cut or slow.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Sleep, sleep};

pub(super) struct Faulty {
    stream: UnixStream,
    bytes_left: Option<u64>,
    delay: Option<Duration>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Faulty {
    /// Ends after this many bytes in both directions together.
    pub(super) fn cut(stream: UnixStream, bytes: u64) -> Self {
        Self {
            stream,
            bytes_left: Some(bytes),
            delay: None,
            waiting: None,
        }
    }

    /// Waits before each read.
    pub(super) fn delayed(stream: UnixStream, delay: Duration) -> Self {
        Self {
            stream,
            bytes_left: None,
            delay: Some(delay),
            waiting: None,
        }
    }

    /// How many of `wanted` bytes may still pass; an error when none may.
    fn allowance(&self, wanted: usize) -> io::Result<usize> {
        match self.bytes_left {
            Some(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(left) => Ok(usize::try_from(left).unwrap_or(usize::MAX).min(wanted)),
            None => Ok(wanted),
        }
    }

    fn passed(&mut self, bytes: usize) {
        if let Some(left) = &mut self.bytes_left {
            *left = left.saturating_sub(bytes as u64);
        }
    }

    /// Waits for the delay, once per read.
    fn poll_delay(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(delay) = self.delay {
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(delay)));
            ready!(waiting.as_mut().poll(cx));
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Faulty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_delay(cx));
        let allowance = self.allowance(buf.remaining())?;
        let mut part = buf.take(allowance);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().to_vec();
        self.waiting = None;
        self.passed(read.len());
        buf.put_slice(&read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Faulty {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let allowance = self.allowance(buf.len())?;
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, &buf[..allowance]))?;
        self.passed(wrote);
        Poll::Ready(Ok(wrote))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(flavor = "current_thread")]
    async fn a_cut_stream_passes_exactly_its_bytes() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut near = Faulty::cut(near, 5);
        assert_eq!(near.write(b"abc").await.unwrap(), 3);
        far.write_all(b"0123456789").await.unwrap();
        let mut read = Vec::new();
        let ended = near.read_to_end(&mut read).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(read, b"01");
        assert!(near.write(b"more").await.is_err());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_delayed_stream_waits_before_each_read() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let delay = Duration::from_secs(1);
        let mut near = Faulty::delayed(near, delay);
        far.write_all(b"ab").await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(near.read_u8().await.unwrap(), b'a');
        assert_eq!(near.read_u8().await.unwrap(), b'b');
        assert_eq!(began.elapsed(), 2 * delay);
    }
}
