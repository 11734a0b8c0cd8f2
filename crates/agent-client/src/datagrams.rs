//! Datagrams between processes in the container and the server.

use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::{BufMut as _, Bytes, BytesMut};
use hotcell_agent_api::bounds::{TUNNEL_DATAGRAM_ADDRESS_BYTES, TUNNEL_DATAGRAM_BYTES_MAX};
use hotcell_agent_api::v1::tunnel_reply::Reply;
use hotcell_agent_api::v1::tunnel_request::Request;
use hotcell_agent_api::v1::{TunnelReply, TunnelRequest};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::{Agent, AgentError, Feature};

/// The datagrams of a purpose that is bound to a [`TunnelAddress::Udp`](crate::TunnelAddress::Udp).
#[derive(Debug)]
pub struct Datagrams {
    replies: Streaming<TunnelReply>,
    sender: DatagramSender,
}

/// Sends datagrams to processes inside.
#[derive(Clone, Debug)]
pub struct DatagramSender(mpsc::Sender<TunnelRequest>);

impl Agent {
    /// Takes the datagrams of a purpose. A later call for the same purpose takes its place.
    pub async fn datagrams(&self, purpose: &str) -> Result<Datagrams, AgentError> {
        self.require(Feature::Datagrams)?;
        let first = Request::Datagrams(purpose.to_owned());
        let (requests, mut replies) = self.call_tunnel(first).await?;
        match replies.message().await?.and_then(|first| first.reply) {
            Some(Reply::Opened(true)) => Ok(Datagrams {
                replies,
                sender: DatagramSender(requests),
            }),
            _ => Err(AgentError::Protocol("a tunnel does not begin as one")),
        }
    }
}

impl Datagrams {
    /// The next datagram and who sent it. Cancel-safe.
    pub async fn receive(&mut self) -> Result<(SocketAddrV4, Bytes), AgentError> {
        let reply = self.replies.message().await?.ok_or(AgentError::Lost)?;
        parse(reply)
    }

    /// Sends answers, also while the next datagram is awaited.
    pub fn sender(&self) -> DatagramSender {
        self.sender.clone()
    }
}

impl DatagramSender {
    /// Sends a datagram to a process inside. It may get lost, as datagrams do.
    pub async fn send(&self, to: SocketAddrV4, payload: &[u8]) {
        let payload = &payload[..payload.len().min(TUNNEL_DATAGRAM_BYTES_MAX)];
        let mut data = BytesMut::with_capacity(TUNNEL_DATAGRAM_ADDRESS_BYTES + payload.len());
        data.put_slice(&to.ip().octets());
        data.put_u16(to.port());
        data.put_slice(payload);
        let request = TunnelRequest {
            request: Some(Request::Data(data.freeze())),
        };
        let _ = self.0.send(request).await;
    }
}

/// Validates a reply that carries a datagram.
pub(crate) fn parse(reply: TunnelReply) -> Result<(SocketAddrV4, Bytes), AgentError> {
    const WRONG: AgentError = AgentError::Protocol("a datagram of a tunnel cannot be one");
    let Some(Reply::Data(mut data)) = reply.reply else {
        return Err(WRONG);
    };
    let max = TUNNEL_DATAGRAM_ADDRESS_BYTES + TUNNEL_DATAGRAM_BYTES_MAX;
    if !(TUNNEL_DATAGRAM_ADDRESS_BYTES..=max).contains(&data.len()) {
        return Err(WRONG);
    }
    let address = data.split_to(TUNNEL_DATAGRAM_ADDRESS_BYTES);
    let [a, b, c, d, high, low] = <[u8; 6]>::try_from(&address[..]).map_err(|_| WRONG)?;
    let (ip, port) = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    if !ip.is_loopback() || port == 0 {
        return Err(WRONG);
    }
    Ok((SocketAddrV4::new(ip, port), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(data: &[u8]) -> Option<(SocketAddrV4, Bytes)> {
        let reply = Some(Reply::Data(Bytes::copy_from_slice(data)));
        parse(TunnelReply { reply }).ok()
    }

    #[test]
    fn a_datagram_comes_from_a_process_inside() {
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0x1234);
        let good = parsed(&[127, 0, 0, 1, 0x12, 0x34, b'x']);
        assert_eq!(good, Some((from, Bytes::from_static(b"x"))));
        assert!(parsed(&[127, 0, 0, 1, 0x12, 0x34]).is_some());
        assert!(parsed(&[127, 0, 0, 1, 0x12]).is_none());
        assert!(parsed(&[127, 0, 0, 1, 0, 0, b'x']).is_none());
        assert!(parsed(&[10, 0, 0, 1, 0x12, 0x34, b'x']).is_none());
        assert!(parsed(&[127; TUNNEL_DATAGRAM_BYTES_MAX + 7]).is_none());
    }
}
