//! Tunnels: byte streams between the server and a process in the container.
//!
//! [`Tunnels`] delivers connections that processes inside open; [`Agent::open_tunnel`] connects to
//! an address inside. Both give a [`TunnelStream`], which is one HTTP/2 stream of the connection,
//! with its own flow control. When the connection to the agent is lost, all its tunnels fail; the
//! agent's listeners stay, and a new [`Tunnels`] starts with them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hotcell_agent_api::bounds::{
    CHUNK_BYTES_MAX, TUNNEL_LISTENERS_MAX, TUNNEL_UNIX_PATH_BYTES_MAX, TUNNELS_MAX,
    is_tunnel_purpose,
};
use hotcell_agent_api::v1::tunnel_address::Address;
use hotcell_agent_api::v1::tunnel_event::Event;
use hotcell_agent_api::v1::tunnel_reply::Reply;
use hotcell_agent_api::v1::tunnel_request::Request;
use hotcell_agent_api::v1::{
    self, TcpAddress, TunnelEvent, TunnelEventsRequest, TunnelIncoming, TunnelListenRequest,
    TunnelListeners, TunnelReply, TunnelRequest, TunnelUnlistenRequest,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::Stream as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::Streaming;

use crate::{Agent, AgentError, AgentRefusal, Feature};

/// How long a process inside may take to read the last bytes of an ended tunnel.
const LINGER_TIMEOUT: Duration = Duration::from_mins(1);

/// Chunks that wait for room in the HTTP/2 window.
const CHUNKS_QUEUED_MAX: usize = 1;

/// Purposes that one connection can bind in total.
const PURPOSES_MAX: usize = 4096;

/// An address inside the container; only loopback and unix addresses are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelAddress {
    /// Port 0 lets a listener use any free port.
    Tcp(SocketAddr),
    /// An absolute path.
    Unix(Vec<u8>),
    /// For a listener of datagrams, which [`Agent::datagrams`] carries.
    Udp(SocketAddrV4),
}

/// Connections that processes inside open. A second one for the same agent takes over: the first
/// gets [`AgentRefusal::Aborted`].
#[derive(Debug)]
pub struct Tunnels {
    agent: Agent,
    events: Streaming<TunnelEvent>,
    incoming: IncomingCheck,
    permits: Arc<Semaphore>,
}

/// A process in the container that has connected to a listener and waits for an answer, at most ten
/// seconds.
#[derive(Debug)]
pub struct IncomingTunnel {
    purpose: String,
    id: u64,
    agent: Agent,
    permit: OwnedSemaphorePermit,
}

/// Validates announcements of an agent: only bound purposes, and increasing ids.
#[derive(Debug)]
pub(crate) struct IncomingCheck {
    /// Every purpose ever bound: connections may still wait after their listener was closed.
    purposes: BTreeMap<String, TunnelAddress>,
    last_id: u64,
}

/// An open tunnel. Shutting down its writing half is a half-close; dropping it before both halves
/// have ended resets the connection inside.
///
/// Reading fails with `ConnectionReset` if the connection inside was reset, with
/// `ConnectionAborted` if the connection to the agent was lost, and with `InvalidData` if the agent
/// violated the protocol; the cause is an [`AgentError`].
#[derive(Debug)]
pub struct TunnelStream {
    /// `None` only while it is dropped.
    replies: Option<Streaming<TunnelReply>>,
    /// `None` once the writing half has ended.
    requests: Option<PollSender<TunnelRequest>>,
    /// Received but not yet read.
    received: Bytes,
    reading: Reading,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for TunnelStream {
    /// When both halves have ended, the last bytes may still be in flight. Ending the call would
    /// reset the connection inside, so a task keeps it open until the agent is done.
    fn drop(&mut self) {
        let is_done = self.reading == Reading::Ended && self.requests.is_none();
        let (Some(mut replies), true) = (self.replies.take(), is_done) else {
            return;
        };
        let permit = self.permit.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(LINGER_TIMEOUT, replies.message()).await;
                drop(permit);
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reading {
    Open,
    Ended,
    Failed(AgentError),
}

impl Agent {
    /// Starts receiving connections that processes inside open.
    pub async fn tunnels(&self) -> Result<Tunnels, AgentError> {
        self.require(Feature::Tunnel)?;
        let events = self.calls().tunnel_events(TunnelEventsRequest {}).await?;
        let mut events = events.into_inner();
        let first = events.message().await?.and_then(|first| first.event);
        let Some(Event::Listeners(listeners)) = first else {
            return Err(AgentError::Protocol(
                "its tunnel events do not begin with its listeners",
            ));
        };
        Ok(Tunnels {
            agent: self.clone(),
            events,
            incoming: IncomingCheck::parse(listeners)?,
            permits: Arc::new(Semaphore::new(TUNNELS_MAX)),
        })
    }

    /// Connects to an address inside. [`AgentRefusal::NotFound`] if nobody listens there.
    pub async fn open_tunnel(&self, address: &TunnelAddress) -> Result<TunnelStream, AgentError> {
        self.require(Feature::Tunnel)?;
        self.tunnel(Request::Open(address.into()), None).await
    }

    async fn tunnel(
        &self,
        first: Request,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<TunnelStream, AgentError> {
        let (requests, mut replies) = self.call_tunnel(first).await?;
        match replies.message().await?.and_then(|first| first.reply) {
            Some(Reply::Opened(true)) => Ok(TunnelStream {
                replies: Some(replies),
                requests: Some(PollSender::new(requests)),
                received: Bytes::new(),
                reading: Reading::Open,
                permit,
            }),
            _ => Err(AgentError::Protocol("a tunnel does not begin as one")),
        }
    }

    pub(crate) async fn call_tunnel(
        &self,
        first: Request,
    ) -> Result<(mpsc::Sender<TunnelRequest>, Streaming<TunnelReply>), AgentError> {
        let (requests, outgoing) = mpsc::channel(CHUNKS_QUEUED_MAX);
        // The receiver exists and the queue is empty, so this cannot fail.
        let _ = requests.try_send(TunnelRequest {
            request: Some(first),
        });
        let replies = self.calls().tunnel(ReceiverStream::new(outgoing)).await?;
        Ok((requests, replies.into_inner()))
    }
}

impl Tunnels {
    /// Every purpose ever bound, with its address.
    pub fn listeners(&self) -> &BTreeMap<String, TunnelAddress> {
        &self.incoming.purposes
    }

    /// Makes the agent listen for a purpose on an unused address; returns the bound address.
    /// Idempotent.
    ///
    /// A purpose has 1 to 288 characters of a-z, 0-9, '.', '-' and '_'.
    pub async fn listen(
        &mut self,
        purpose: &str,
        address: &TunnelAddress,
    ) -> Result<TunnelAddress, AgentError> {
        let known = &mut self.incoming.purposes;
        if known.len() >= PURPOSES_MAX && !known.contains_key(purpose) {
            return Err(too_many_purposes());
        }
        // Inserted before the call, because the first connection may be announced before the
        // answer. Kept if the call fails, because it is unknown what the agent did.
        known.insert(purpose.to_owned(), address.clone());
        let request = TunnelListenRequest {
            purpose: purpose.to_owned(),
            address: Some(address.into()),
        };
        let reply = self.agent.calls().tunnel_listen(request).await?;
        let bound = TunnelAddress::parse(reply.into_inner().address)?;
        let purposes = &mut self.incoming.purposes;
        purposes.insert(purpose.to_owned(), bound.clone());
        Ok(bound)
    }

    /// Closes the listener of a purpose and resets its waiting connections; open tunnels continue.
    pub async fn unlisten(&mut self, purpose: &str) -> Result<(), AgentError> {
        let request = TunnelUnlistenRequest {
            purpose: purpose.to_owned(),
        };
        self.agent.calls().tunnel_unlisten(request).await?;
        Ok(())
    }

    /// The next incoming connection. Waits while `TUNNELS_MAX` accepted ones are open. Cancel-safe.
    pub async fn accept(&mut self) -> Result<IncomingTunnel, AgentError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| AgentError::Lost)?;
        let event = self.events.message().await?;
        let event = event.ok_or(AgentError::Protocol("its tunnel events end"))?;
        let (id, purpose) = self.incoming.take(event)?;
        Ok(IncomingTunnel {
            purpose,
            id,
            agent: self.agent.clone(),
            permit,
        })
    }
}

impl IncomingTunnel {
    /// The purpose of the listener it connected to.
    pub fn purpose(&self) -> &str {
        &self.purpose
    }

    /// Opens the tunnel. [`AgentRefusal::NotFound`] if the process has given up.
    pub async fn accept(self) -> Result<TunnelStream, AgentError> {
        let Self {
            agent, id, permit, ..
        } = self;
        agent.tunnel(Request::Accept(id), Some(permit)).await
    }

    /// Resets the connection. It is no error if it is gone already.
    pub async fn refuse(self) -> Result<(), AgentError> {
        let refused = self.agent.call_tunnel(Request::Refuse(self.id)).await;
        match refused {
            Ok((_, mut replies)) => match replies.message().await? {
                None => Ok(()),
                Some(_) => Err(AgentError::Protocol("a refused tunnel begins")),
            },
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl IncomingCheck {
    pub(crate) fn parse(table: TunnelListeners) -> Result<Self, AgentError> {
        if table.listeners.len() > TUNNEL_LISTENERS_MAX {
            return Err(AgentError::Protocol("it has more listeners than it can"));
        }
        let mut purposes = BTreeMap::new();
        for listener in table.listeners {
            let address = TunnelAddress::parse(listener.address)?;
            if !is_tunnel_purpose(&listener.purpose) {
                return Err(AgentError::Protocol("a purpose's name cannot be one"));
            }
            purposes.insert(listener.purpose, address);
        }
        Ok(Self {
            purposes,
            last_id: 0,
        })
    }

    /// Checks an event and returns its connection.
    pub(crate) fn take(&mut self, event: TunnelEvent) -> Result<(u64, String), AgentError> {
        let Some(Event::Incoming(TunnelIncoming { tunnel_id, purpose })) = event.event else {
            return Err(AgentError::Protocol("it sent an empty or a second table"));
        };
        if tunnel_id <= self.last_id {
            return Err(AgentError::Protocol("the ids of its tunnels do not grow"));
        }
        if !self.purposes.contains_key(&purpose) {
            return Err(AgentError::Protocol("it opens a tunnel nobody asked for"));
        }
        self.last_id = tunnel_id;
        Ok((tunnel_id, purpose))
    }
}

fn too_many_purposes() -> AgentError {
    AgentError::Refused {
        refusal: AgentRefusal::Exhausted,
        message: format!("no more than {PURPOSES_MAX} purposes can be bound over one connection"),
    }
}

impl TunnelAddress {
    pub(crate) fn parse(address: Option<v1::TunnelAddress>) -> Result<Self, AgentError> {
        const WRONG: AgentError = AgentError::Protocol("an address of a tunnel cannot be one");
        match address.and_then(|address| address.address).ok_or(WRONG)? {
            Address::Tcp(address) => parse_ip(&address).map(Self::Tcp).ok_or(WRONG),
            Address::Udp(address) => match parse_ip(&address) {
                Some(SocketAddr::V4(address)) => Ok(Self::Udp(address)),
                Some(SocketAddr::V6(_)) | None => Err(WRONG),
            },
            Address::UnixPath(path) => {
                let is_legal = path.starts_with(b"/") && path.len() <= TUNNEL_UNIX_PATH_BYTES_MAX;
                is_legal.then(|| Self::Unix(path.into())).ok_or(WRONG)
            }
        }
    }
}

/// A loopback address.
fn parse_ip(TcpAddress { ip, port }: &TcpAddress) -> Option<SocketAddr> {
    let ip = <[u8; 4]>::try_from(&ip[..])
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(&ip[..]).map(IpAddr::from))
        .ok()
        .filter(IpAddr::is_loopback)?;
    Some(SocketAddr::new(ip, u16::try_from(*port).ok()?))
}

fn wire_ip(address: SocketAddr) -> TcpAddress {
    TcpAddress {
        ip: match address.ip() {
            IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
        },
        port: address.port().into(),
    }
}

impl From<&TunnelAddress> for v1::TunnelAddress {
    fn from(address: &TunnelAddress) -> Self {
        let address = match address {
            TunnelAddress::Tcp(tcp) => Address::Tcp(wire_ip(*tcp)),
            TunnelAddress::Udp(udp) => Address::Udp(wire_ip((*udp).into())),
            TunnelAddress::Unix(path) => Address::UnixPath(Bytes::copy_from_slice(path)),
        };
        Self {
            address: Some(address),
        }
    }
}

impl TunnelStream {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<TunnelReply, tonic::Status>>> {
        match &mut self.replies {
            Some(replies) => Pin::new(replies).poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    /// Processes the next reply: bytes to read, the end, or a failure.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reply = ready!(self.poll_next(cx));
        self.reading = match reply {
            Some(Ok(reply)) => self.take(reply).unwrap_or_else(Reading::Failed),
            Some(Err(status)) => Reading::Failed(status.into()),
            None => Reading::Failed(AgentError::Protocol("a tunnel ends in the middle")),
        };
        Poll::Ready(())
    }

    fn take(&mut self, reply: TunnelReply) -> Result<Reading, AgentError> {
        match check_reply(reply, self.reading == Reading::Ended)? {
            Some(data) => {
                self.received = data;
                Ok(Reading::Open)
            }
            None => Ok(Reading::Ended),
        }
    }

    /// Why writing failed: the error that the reading half received, if any.
    fn write_failure(&mut self, cx: &mut Context<'_>) -> io::Error {
        if self.reading == Reading::Open && self.received.is_empty() {
            let _ = self.poll_reply(cx);
        }
        match &self.reading {
            Reading::Failed(error) => io_error(error),
            Reading::Open | Reading::Ended => io::ErrorKind::BrokenPipe.into(),
        }
    }

    /// Sends a request as soon as there is room.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        request: impl FnOnce() -> Request,
    ) -> Poll<io::Result<()>> {
        let Some(requests) = &mut self.requests else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let sent = ready!(requests.poll_reserve(cx)).and_then(|()| {
            requests.send_item(TunnelRequest {
                request: Some(request()),
            })
        });
        Poll::Ready(sent.map_err(|_| self.write_failure(cx)))
    }
}

/// Validates a reply and returns its bytes; `None` at the end.
pub(crate) fn check_reply(
    reply: TunnelReply,
    has_ended: bool,
) -> Result<Option<Bytes>, AgentError> {
    match reply.reply {
        _ if has_ended => Err(AgentError::Protocol("a tunnel goes on behind its end")),
        Some(Reply::Data(data)) if (1..=CHUNK_BYTES_MAX).contains(&data.len()) => Ok(Some(data)),
        Some(Reply::End(true)) => Ok(None),
        Some(Reply::Data(_) | Reply::Opened(_) | Reply::End(false)) | None => {
            Err(AgentError::Protocol("a piece of a tunnel cannot be one"))
        }
    }
}

fn io_error(error: &AgentError) -> io::Error {
    let kind = match error {
        AgentError::Lost => io::ErrorKind::ConnectionAborted,
        AgentError::Refused { .. } => io::ErrorKind::ConnectionReset,
        AgentError::Protocol(_) | AgentError::Version { .. } | AgentError::TooOld { .. } => {
            io::ErrorKind::InvalidData
        }
    };
    io::Error::new(kind, error.clone())
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.received.is_empty() {
            match &self.reading {
                Reading::Open => ready!(self.poll_reply(cx)),
                Reading::Failed(error) => return Poll::Ready(Err(io_error(error))),
                // Polls only to detect an unexpected message.
                Reading::Ended => match self.poll_next(cx) {
                    Poll::Ready(Some(Ok(reply))) => {
                        if let Err(error) = check_reply(reply, true) {
                            self.reading = Reading::Failed(error);
                        }
                    }
                    Poll::Ready(Some(Err(_)) | None) | Poll::Pending => return Poll::Ready(Ok(())),
                },
            }
        }
        let count = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received[..count]);
        self.received.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = data.len().min(CHUNK_BYTES_MAX);
        if count == 0 {
            return Poll::Ready(Ok(0));
        }
        let chunk = || Request::Data(Bytes::copy_from_slice(&data[..count]));
        ready!(self.poll_send(cx, chunk))?;
        Poll::Ready(Ok(count))
    }

    /// Writes are sent without buffering.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.requests.is_some() {
            ready!(self.poll_send(cx, || Request::End(true)))?;
            self.requests = None;
        }
        Poll::Ready(Ok(()))
    }
}
