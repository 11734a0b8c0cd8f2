//! A connection of a process inside that is closed as a socket is.
//!
//! Dropping a tunnel resets it, and what the process has not read yet is lost. A host that answers
//! and closes must not end like that: once we have said that nothing more comes, the tunnel stays
//! until the process has closed its side too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hotcell_agent_client::TunnelStream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// How long a process may take to close a connection that has ended on our side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A tunnel that is not reset while its last bytes are on their way.
pub(super) struct ClosingStream {
    /// `None` only while it is dropped.
    tunnel: Option<TunnelStream>,
    is_shut: bool,
}

impl ClosingStream {
    pub(super) fn new(tunnel: TunnelStream) -> Self {
        Self {
            tunnel: Some(tunnel),
            is_shut: false,
        }
    }

    fn poll<T>(
        &mut self,
        poll: impl FnOnce(Pin<&mut TunnelStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.tunnel {
            Some(tunnel) => poll(Pin::new(tunnel)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Drop for ClosingStream {
    fn drop(&mut self) {
        let (Some(mut tunnel), true) = (self.tunnel.take(), self.is_shut) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let mut rest = [0; 1024];
                let drain = async { while let Ok(1..) = tunnel.read(&mut rest).await {} };
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, drain).await;
            });
        }
    }
}

impl AsyncRead for ClosingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(|tunnel| tunnel.poll_read(cx, buf))
    }
}

impl AsyncWrite for ClosingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|tunnel| tunnel.poll_write(cx, data))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|tunnel| tunnel.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = self.poll(|tunnel| tunnel.poll_shutdown(cx));
        self.is_shut |= matches!(shut, Poll::Ready(Ok(())));
        shut
    }
}
