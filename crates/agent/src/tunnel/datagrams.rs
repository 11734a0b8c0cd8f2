//! Datagrams of a purpose, carried by one call of the server.
//!
//! The socket belongs to the agent, so that a program that asks while no server is connected waits
//! for the next one: its datagram stays in the socket's buffer, which the kernel bounds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use hotcell_agent_api::bounds::{TUNNEL_DATAGRAM_ADDRESS_BYTES, TUNNEL_DATAGRAM_BYTES_MAX};
use hotcell_agent_api::v1::tunnel_reply::Reply;
use hotcell_agent_api::v1::tunnel_request::Request;
use hotcell_agent_api::v1::{TunnelReply, TunnelRequest};
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::pump::Replies;

/// Datagrams that wait for room in the HTTP/2 window.
const DATAGRAMS_QUEUED_MAX: usize = 1;

/// A bound socket. The newest call of the server has it.
#[derive(Clone, Debug)]
pub(super) struct DatagramSocket {
    socket: Arc<UdpSocket>,
    /// How many calls have taken it.
    calls: Arc<watch::Sender<u64>>,
}

impl DatagramSocket {
    pub(super) fn bind(address: SocketAddrV4) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: Arc::new(UdpSocket::from_std(socket)?),
            calls: Arc::new(watch::Sender::new(0)),
        })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddrV4> {
        match self.socket.local_addr()? {
            SocketAddr::V4(address) => Ok(address),
            SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Carries datagrams until the call ends or another one takes its place.
    pub(super) fn serve(
        self,
        requests: Streaming<TunnelRequest>,
        permit: OwnedSemaphorePermit,
    ) -> Replies {
        let (sender, receiver) = mpsc::channel(DATAGRAMS_QUEUED_MAX);
        self.calls.send_modify(|calls| *calls += 1);
        let mut calls = self.calls.subscribe();
        tokio::spawn(async move {
            let carried = tokio::select! {
                status = self.outward(&sender) => status,
                status = self.inward(requests) => status,
                _ = calls.changed() => Some(Status::aborted("another call has taken over")),
                () = sender.closed() => None,
            };
            if let Some(status) = carried {
                let _ = sender.send(Err(status)).await;
            }
            drop(permit);
        });
        ReceiverStream::new(receiver)
    }

    /// Copies from programs inside to the server. Returns why it cannot go on, if anybody is to
    /// be told.
    async fn outward(&self, replies: &mpsc::Sender<Result<TunnelReply, Status>>) -> Option<Status> {
        let mut next = Reply::Opened(true);
        loop {
            let reply = TunnelReply { reply: Some(next) };
            replies.send(Ok(reply)).await.ok()?;
            next = match self.receive().await {
                Ok(datagram) => Reply::Data(datagram),
                Err(error) => return Some(Status::internal(format!("could not receive: {error}"))),
            };
        }
    }

    async fn receive(&self) -> io::Result<Bytes> {
        let mut buffer = vec![0; TUNNEL_DATAGRAM_BYTES_MAX];
        loop {
            let received = self.socket.recv_from(&mut buffer).await;
            match received {
                Ok((count, SocketAddr::V4(from))) => {
                    let mut datagram =
                        BytesMut::with_capacity(TUNNEL_DATAGRAM_ADDRESS_BYTES + count);
                    datagram.put_slice(&from.ip().octets());
                    datagram.put_u16(from.port());
                    datagram.put_slice(&buffer[..count]);
                    return Ok(datagram.freeze());
                }
                // An answer of ours found its asker gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Ok((_, SocketAddr::V6(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies from the server to programs inside.
    async fn inward(&self, mut requests: Streaming<TunnelRequest>) -> Option<Status> {
        loop {
            let request = requests.message().await.ok()??.request;
            let Some((to, payload)) = request.and_then(parse) else {
                return Some(Status::invalid_argument(
                    "requests after the first must be datagrams",
                ));
            };
            // Whoever asked may be gone, or its buffer full: datagrams get lost.
            let _ = self.socket.send_to(&payload, to).await;
        }
    }
}

/// A datagram for a program inside: only loopback addresses are.
fn parse(request: Request) -> Option<(SocketAddrV4, Bytes)> {
    let Request::Data(mut datagram) = request else {
        return None;
    };
    let max = TUNNEL_DATAGRAM_ADDRESS_BYTES + TUNNEL_DATAGRAM_BYTES_MAX;
    if !(TUNNEL_DATAGRAM_ADDRESS_BYTES..=max).contains(&datagram.len()) {
        return None;
    }
    let address = datagram.split_to(TUNNEL_DATAGRAM_ADDRESS_BYTES);
    let [a, b, c, d, high, low] = <[u8; 6]>::try_from(&address[..]).ok()?;
    let ip = Ipv4Addr::new(a, b, c, d);
    let port = u16::from_be_bytes([high, low]);
    (ip.is_loopback() && port > 0).then(|| (SocketAddrV4::new(ip, port), datagram))
}
