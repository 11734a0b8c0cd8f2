//! Accepts connections, limits their number, and notices when the last one closes.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hotcell_agent_api::bounds::{
    AGENT_STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, MESSAGE_BYTES_MAX,
    STREAMS_MAX,
};
use hotcell_agent_api::v1::agent_server::AgentServer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use crate::handshake::{self, PendingPeers};
use crate::log;
use crate::service::AgentService;

/// Concurrent connections; another one is closed as soon as it is accepted.
const CONNECTIONS_MAX: usize = 8;

/// The pause after a failed accept, for example when out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long answers may take to be sent after the agent was told to stop.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// The number of open connections, and whether the agent should stop.
#[derive(Default)]
pub(crate) struct Connections {
    open: watch::Sender<usize>,
    is_closed: watch::Sender<bool>,
}

impl Connections {
    /// Makes [`serve`] return once the calls in flight are answered.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    async fn closed(&self) {
        let _ = self.is_closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Closes once no connection has been open for `linger`, counted from the end of the last one.
    async fn close_when_left(&self, linger: Duration) {
        let mut connections = self.open.subscribe();
        let _ = connections.wait_for(|count| *count > 0).await;
        loop {
            let _ = connections.wait_for(|count| *count == 0).await;
            let back = connections.wait_for(|count| *count > 0);
            if tokio::time::timeout(linger, back).await.is_err() {
                return self.close();
            }
        }
    }
}

/// Serves until `connections` is closed.
pub(crate) async fn serve(
    incoming: Incoming,
    service: AgentService,
    connections: &Arc<Connections>,
    linger: Option<Duration>,
) -> io::Result<()> {
    let service = AgentServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let server = Server::builder()
        .initial_stream_window_size(AGENT_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        // A late frame for a call that we have ended counts as an error. The count is never reset,
        // and the default limit of 1024, which a day of execs can reach, would close the
        // connection.
        .http2_max_local_error_reset_streams(None)
        .serve_with_incoming_shutdown(service, incoming, connections.closed());
    let lingering = async {
        match linger {
            Some(linger) => connections.close_when_left(linger).await,
            None => std::future::pending().await,
        }
    };
    let flushed = async {
        tokio::select! {
            () = connections.closed() => {}
            () = lingering => {}
        }
        tokio::time::sleep(FLUSH_MAX).await;
    };
    tokio::select! {
        result = server => result.map_err(io::Error::other),
        () = flushed => Ok(()),
    }
}

/// Accepted connections. Never ends and never fails.
pub(crate) struct Incoming {
    listener: UnixListener,
    /// Authenticates peers where every process can connect.
    pending_peers: Option<PendingPeers>,
    connections: Arc<Connections>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// Accepts every peer, or only that of one user if it is given.
    pub(crate) fn new(
        listener: StdListener,
        allowed_uid: Option<u32>,
        connections: &Arc<Connections>,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            pending_peers: allowed_uid.map(PendingPeers::new),
            connections: connections.clone(),
            pause: None,
        })
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        loop {
            if let Some(pending_peers) = &mut self.pending_peers
                && let Poll::Ready(stream) = pending_peers.poll_authenticated(cx)
            {
                return Poll::Ready(Ok(stream));
            }
            let (stream, _) = ready!(self.listener.poll_accept(cx))?;
            match &mut self.pending_peers {
                Some(pending_peers) => pending_peers.add(stream)?,
                None => return Poll::Ready(Ok(stream)),
            }
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.poll_accept(cx)) {
                Ok(stream) => {
                    if let Some(connection) = Connection::new(stream, &self.connections)
                        && self
                            .pending_peers
                            .as_ref()
                            .is_none_or(|_| handshake::confirm(&connection.stream))
                    {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
                Err(error) => {
                    log::line(format_args!("could not accept a connection: {error}"));
                    let until = Instant::now() + ACCEPT_PAUSE;
                    self.pause = Some(Box::pin(tokio::time::sleep_until(until)));
                }
            }
        }
    }
}

/// An open connection, counted until it is dropped.
pub(crate) struct Connection {
    stream: UnixStream,
    connections: Arc<Connections>,
}

impl Connection {
    /// Counts the connection, or drops it if there are too many.
    fn new(stream: UnixStream, connections: &Arc<Connections>) -> Option<Self> {
        let has_room = connections.open.send_if_modified(|count| {
            let has_room = *count < CONNECTIONS_MAX;
            *count += usize::from(has_room);
            has_room
        });
        has_room.then(|| Self {
            stream,
            connections: connections.clone(),
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.open.send_modify(|count| {
            let left = count.checked_sub(1);
            *count = left.expect("each connection that ends was counted");
        });
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
