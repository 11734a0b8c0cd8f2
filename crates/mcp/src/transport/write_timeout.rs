//! Limits how long a client may leave an answer unread.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::limits::READ_BYTES_MIN;

type Written = Poll<io::Result<usize>>;

/// A byte stream whose writes fail with `TimedOut` without enough progress: a peer that takes a
/// byte now and then blocks as much memory as one that takes none.
pub struct WriteTimeout<S> {
    inner: S,
    timeout: Duration,
    /// Bytes that a peer must accept within the timeout, if there are as many.
    bytes_min: usize,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Bytes accepted since the timer was started.
    taken: usize,
}

impl<S> WriteTimeout<S> {
    /// Fails writes to `inner` that make too little progress within `timeout`.
    pub fn new(inner: S, timeout: Duration) -> Self {
        Self::with_bytes_min(inner, timeout, READ_BYTES_MIN)
    }

    fn with_bytes_min(inner: S, timeout: Duration, bytes_min: usize) -> Self {
        Self {
            inner,
            timeout,
            bytes_min,
            waiting: None,
            taken: 0,
        }
    }

    /// The peer has accepted everything, or enough of it.
    fn rest(&mut self) {
        self.waiting = None;
        self.taken = 0;
    }

    fn note(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Written {
        if let Poll::Ready(Ok(bytes)) = &written
            && self.waiting.is_some()
        {
            self.taken += bytes;
            if self.taken >= self.bytes_min {
                self.rest();
            }
        }
        self.wait(written, cx)
    }

    /// Passes `written` on, unless it has taken too long.
    fn wait<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, data);
        self.note(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, data);
        self.note(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        // A writer flushes when nothing is left.
        if flushed.is_ready() {
            self.rest();
        }
        self.wait(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.wait(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_given_up() {
        let (_peer, stream) = tokio::io::duplex(8);
        let mut stream = WriteTimeout::new(stream, Duration::from_mins(1));
        stream.write_all(b"12345678").await.unwrap();
        let error = stream.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_waited_for() {
        let (mut peer, stream) = tokio::io::duplex(1);
        let mut stream = WriteTimeout::with_bytes_min(stream, Duration::from_mins(1), 1);
        let reading = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                peer.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(b"abcd"), reading);
        written.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_hardly_anything_is_given_up() {
        let (mut peer, stream) = tokio::io::duplex(1);
        let mut stream = WriteTimeout::with_bytes_min(stream, Duration::from_mins(1), 10);
        let reading = async {
            loop {
                tokio::time::sleep(Duration::from_secs(20)).await;
                peer.read_u8().await.unwrap();
            }
        };
        let error = tokio::select! {
            written = stream.write_all(&[0; 100]) => written.unwrap_err(),
            () = reading => unreachable!("it reads for ever"),
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_that_was_read_slowly_counts_nothing_against_the_next() {
        let (mut peer, stream) = tokio::io::duplex(4);
        let mut stream = WriteTimeout::with_bytes_min(stream, Duration::from_mins(1), 100);
        for _ in 0..3 {
            let reading = async {
                tokio::time::sleep(Duration::from_secs(40)).await;
                peer.read_exact(&mut [0; 8]).await.unwrap();
            };
            let writing = async {
                stream.write_all(&[0; 8]).await.unwrap();
                stream.flush().await.unwrap();
            };
            tokio::join!(reading, writing);
        }
    }
}
