//! Copies bytes between a socket inside and a call of the server, in both directions.
//!
//! One chunk is in flight per direction. If the server does not read, its HTTP/2 window fills up
//! and the socket is not read; if the socket does not accept data, requests are not read. Tunnels
//! never block each other.

use std::io;

use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::tunnel_reply::Reply;
use hotcell_agent_api::v1::tunnel_request::Request;
use hotcell_agent_api::v1::{TunnelReply, TunnelRequest};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::socket::LocalSocket;

/// Chunks that wait for room in the HTTP/2 window.
const CHUNKS_QUEUED_MAX: usize = 1;

pub(crate) type Replies = ReceiverStream<Result<TunnelReply, Status>>;

/// Why a tunnel ended early.
enum Broken {
    /// The connection inside was reset.
    Inside(io::Error),
    /// The server violated the protocol.
    Request(&'static str),
    /// The server or its connection went away.
    Cancelled,
}

/// Copies until both directions have ended or one side is gone; then releases the permit.
pub(super) fn start(
    socket: LocalSocket,
    requests: Streaming<TunnelRequest>,
    permit: OwnedSemaphorePermit,
) -> Replies {
    let (sender, receiver) = mpsc::channel(CHUNKS_QUEUED_MAX);
    tokio::spawn(async move {
        run(socket, requests, sender).await;
        drop(permit);
    });
    ReceiverStream::new(receiver)
}

/// An empty stream of replies.
pub(super) fn nothing() -> Replies {
    ReceiverStream::new(mpsc::channel(1).1)
}

async fn run(
    socket: LocalSocket,
    requests: Streaming<TunnelRequest>,
    replies: mpsc::Sender<Result<TunnelReply, Status>>,
) {
    let copied = async { tokio::try_join!(inward(requests, &socket), outward(&socket, &replies)) };
    let copied = tokio::select! {
        copied = copied => copied,
        () = replies.closed() => Err(Broken::Cancelled),
    };
    let status = match copied {
        Ok(((), ())) => return socket.finish(),
        Err(Broken::Inside(error)) => {
            Status::aborted(format!("the connection inside was reset: {error}"))
        }
        Err(Broken::Request(reason)) => Status::invalid_argument(reason),
        Err(Broken::Cancelled) => return,
    };
    drop(socket);
    let _ = replies.send(Err(status)).await;
}

/// Copies from the server to the socket. If the peer no longer reads, its input is discarded; its
/// output is still forwarded.
async fn inward(
    mut requests: Streaming<TunnelRequest>,
    socket: &LocalSocket,
) -> Result<(), Broken> {
    let mut is_read = true;
    loop {
        let request = requests.message().await.map_err(|_| Broken::Cancelled)?;
        match request.ok_or(Broken::Cancelled)?.request {
            Some(Request::Data(data)) if (1..=CHUNK_BYTES_MAX).contains(&data.len()) => {
                is_read = is_read && socket.write_all(&data).await.is_ok();
            }
            Some(Request::End(true)) => break,
            Some(Request::Data(_)) => return Err(Broken::Request("a piece is empty or too large")),
            Some(
                Request::Accept(_)
                | Request::Refuse(_)
                | Request::Open(_)
                | Request::Datagrams(_)
                | Request::End(false),
            )
            | None => {
                return Err(Broken::Request(
                    "requests after the first must be data or end",
                ));
            }
        }
    }
    // Fails if the peer no longer reads, which is fine.
    let _ = socket.end_writing();
    match requests.message().await {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Broken::Request("a request follows the end")),
        Err(_) => Err(Broken::Cancelled),
    }
}

/// Copies from the socket to the server.
async fn outward(
    socket: &LocalSocket,
    replies: &mpsc::Sender<Result<TunnelReply, Status>>,
) -> Result<(), Broken> {
    send(replies, Reply::Opened(true)).await?;
    loop {
        let data = socket.read().await.map_err(Broken::Inside)?;
        if data.is_empty() {
            return send(replies, Reply::End(true)).await;
        }
        send(replies, Reply::Data(data)).await?;
    }
}

async fn send(
    replies: &mpsc::Sender<Result<TunnelReply, Status>>,
    reply: Reply,
) -> Result<(), Broken> {
    let reply = TunnelReply { reply: Some(reply) };
    let sent = replies.send(Ok(reply)).await;
    sent.map_err(|_| Broken::Cancelled)
}
