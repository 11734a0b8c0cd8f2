//! Serves one connection of a container, in this order: name, policy, first bytes, dial.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::HostName;
use crate::denial::{Denial, Reason};
use crate::guest::{Guest, Opened, Target};
use crate::hello::{self, Hello};
use crate::meter::{Metered, Traffic};
use crate::policy::{Grant, Refusal};
use crate::proxy::{self, Scheme, Site};
use crate::resolve::DialError;

/// How long a program may take for its first bytes, and a TLS handshake on either side.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);

/// The first byte of a TLS record that carries a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

pub(crate) const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Why a connection ended early. Whoever is inside sees a reset; the operator's log has this.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hello(#[from] hello::HelloError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Authority(#[from] crate::AuthorityError),
    #[error("took too long")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl Guest {
    /// Serves a connection until it ends. Dropping the future ends it.
    pub async fn serve(self: &Arc<Self>, target: Target, stream: impl Stream) {
        let served = match &target {
            Target::Name(name, port) => self.serve_name(name, *port, stream).await,
            Target::Refused(port) => self.serve_refusal(*port, stream).await,
        };
        if let Err(error) = served {
            tracing::debug!(?target, %error, "an egress connection ended early");
        }
    }

    async fn serve_name(
        self: &Arc<Self>,
        name: &HostName,
        port: u16,
        stream: impl Stream,
    ) -> Result<(), ServeError> {
        let (grant, permit) = match self.permit(name, port) {
            Ok(permitted) => permitted,
            Err(denial) => return self.refuse(denial, stream).await,
        };
        let opened = Opened {
            host: name.clone(),
            port,
            rule: grant.rule.clone(),
        };
        self.observer.opened(&opened);
        let connection = Connection {
            guest: Arc::clone(self),
            name: name.clone(),
            port,
            grant,
            traffic: Arc::default(),
        };
        let served = connection.serve(stream).await;
        let traffic = &connection.traffic;
        self.observer.closed(&opened, traffic.down(), traffic.up());
        drop(permit);
        served
    }

    /// A host whose certificate is not accepted is a 502 that says so, and not a mystery.
    async fn tell_tls_failure(
        &self,
        name: &HostName,
        hello: Hello,
        stream: impl Stream,
        error: &io::Error,
    ) -> Result<(), ServeError> {
        tracing::info!(host = %name, %error, "could not open TLS towards a host");
        let inside = self.accept_tls(name, hello, stream, None).await?;
        let text = format!("# egress to {name}: TLS towards the host failed: {error}\n");
        Ok(proxy::answer_all(inside, false, move || proxy::bad_gateway(&text)).await?)
    }

    async fn accept_tls<S: Stream>(
        &self,
        name: &HostName,
        hello: Hello,
        stream: S,
        protocol: Option<Vec<u8>>,
    ) -> Result<tokio_rustls::server::TlsStream<Prefixed<S>>, ServeError> {
        let protocols = protocol.into_iter().collect();
        let config = self.broker.authority.server_config(name, protocols)?;
        let stream = Prefixed::new(hello.bytes, stream);
        let accepting = TlsAcceptor::from(Arc::new(config)).accept(stream);
        Ok(timeout(FIRST_BYTES_TIMEOUT, accepting).await??)
    }

    /// A connection to the address of refused names: it says itself which name it wants.
    async fn serve_refusal(&self, port: u16, mut stream: impl Stream) -> Result<(), ServeError> {
        if port != 443 {
            let refuse = |host: &str| self.refused(host, port);
            return Ok(proxy::answer_by_host(stream, refuse).await?);
        }
        let hello = timeout(FIRST_BYTES_TIMEOUT, hello::read(&mut stream)).await??;
        let Some(name) = hello.name.clone() else {
            self.record(&self.denial("(no name)", port, Reason::NoServerName));
            return Ok(());
        };
        let denial = self.reason_of(name.as_str(), Some(&name), port);
        self.refuse_tls(denial, &name, hello, stream).await
    }

    /// Refuses a connection to a name of its own.
    async fn refuse(&self, denial: Denial, mut stream: impl Stream) -> Result<(), ServeError> {
        let first = timeout(FIRST_BYTES_TIMEOUT, stream.read_u8()).await??;
        let mut stream = Prefixed::new(BytesMut::from(&[first][..]), stream);
        if first != TLS_HANDSHAKE {
            return self.refuse_http(denial, stream).await;
        }
        let hello = timeout(FIRST_BYTES_TIMEOUT, hello::read(&mut stream)).await??;
        let Some(name) = hello.name.clone() else {
            self.record(&denial);
            return Ok(());
        };
        self.refuse_tls(denial, &name, hello, stream).await
    }

    /// Answers over TLS that the container trusts, with HTTP/1.1 where the client speaks it:
    /// HTTP/2 has no reason phrase, which is all that some programs show.
    async fn refuse_tls(
        &self,
        denial: Denial,
        name: &HostName,
        hello: Hello,
        stream: impl Stream,
    ) -> Result<(), ServeError> {
        let offers = |protocol: &[u8]| hello.protocols.iter().any(|own| own == protocol);
        let is_h2 = offers(H2) && !offers(HTTP_1_1);
        let protocol = match (is_h2, hello.protocols.is_empty()) {
            (true, _) => Some(H2.to_vec()),
            (false, true) => None,
            (false, false) => Some(HTTP_1_1.to_vec()),
        };
        self.record(&denial);
        let inside = self.accept_tls(name, hello, stream, protocol).await?;
        Ok(proxy::answer_all(inside, is_h2, move || denial.page()).await?)
    }

    async fn refuse_http(&self, denial: Denial, stream: impl Stream) -> Result<(), ServeError> {
        self.record(&denial);
        Ok(proxy::answer_all(stream, false, move || denial.page()).await?)
    }

    /// The denial of a host that leads to the address of refused names, recorded.
    fn refused(&self, host: &str, port: u16) -> Denial {
        let name = HostName::parse(host).ok();
        let denial = self.reason_of(host, name.as_ref(), port);
        self.record(&denial);
        denial
    }

    fn reason_of(&self, host: &str, name: Option<&HostName>, port: u16) -> Denial {
        let profile = self.broker.profile(&self.profile);
        let reason = match (name, profile) {
            (Some(name), Some(profile)) => match profile.decide(name, port) {
                Ok(_) => Reason::Private,
                Err(refusal) => Reason::Policy(refusal),
            },
            _ => Reason::Policy(Refusal::NotListed),
        };
        self.denial(host, port, reason)
    }
}

/// A connection that the profile allows.
struct Connection {
    guest: Arc<Guest>,
    name: HostName,
    port: u16,
    grant: Arc<Grant>,
    traffic: Arc<Traffic>,
}

impl Connection {
    async fn serve(&self, mut stream: impl Stream) -> Result<(), ServeError> {
        let is_seen = self.grant.access.needs_requests();
        if !is_seen && !matches!(self.port, 80 | 443) {
            return splice(stream, self.dial().await?).await;
        }
        let first = timeout(FIRST_BYTES_TIMEOUT, stream.read_u8()).await??;
        let stream = Prefixed::new(BytesMut::from(&[first][..]), stream);
        match first {
            TLS_HANDSHAKE => self.serve_tls(stream).await,
            _ if self.port == 443 => {
                self.guest.record(&self.denial(Reason::NoServerName));
                Ok(())
            }
            _ => self.serve_plain(stream).await,
        }
    }

    /// HTTP without TLS is always read: its requests say where they go.
    async fn serve_plain(&self, stream: impl Stream) -> Result<(), ServeError> {
        let outside = match self.dial().await {
            Ok(outside) => outside,
            Err(DialError::Private) => {
                let denial = self.denial(Reason::Private);
                return self.guest.refuse_http(denial, stream).await;
            }
            Err(error) => return Err(error.into()),
        };
        Ok(proxy::http1(self.site(Scheme::Http), stream, outside).await?)
    }

    async fn serve_tls(&self, mut stream: impl Stream) -> Result<(), ServeError> {
        let hello = timeout(FIRST_BYTES_TIMEOUT, hello::read(&mut stream)).await??;
        if hello.name.as_ref() != Some(&self.name) {
            let reason = match &hello.name {
                Some(named) => Reason::OtherName {
                    named: named.to_string(),
                },
                None => Reason::NoServerName,
            };
            self.guest.record(&self.denial(reason));
            return Ok(());
        }
        let outside = match self.dial().await {
            Ok(outside) => outside,
            Err(DialError::Private) => {
                let denial = self.denial(Reason::Private);
                return self
                    .guest
                    .refuse_tls(denial, &self.name, hello, stream)
                    .await;
            }
            Err(error) => return Err(error.into()),
        };
        if self.grant.access.needs_requests() {
            return self.open_tls(hello, stream, outside).await;
        }
        let stream = Prefixed::new(hello.bytes, stream);
        splice(stream, outside).await
    }

    /// Ends TLS here and begins it anew towards the host, with the protocol that the host chose.
    async fn open_tls(
        &self,
        hello: Hello,
        stream: impl Stream,
        outside: Metered<TcpStream>,
    ) -> Result<(), ServeError> {
        let (guest, name) = (&self.guest, &self.name);
        let mut tls = (*guest.broker.client_tls()).clone();
        tls.alpn_protocols = common_protocols(&hello.protocols);
        let server_name = name.as_str().to_owned().try_into();
        let server_name = server_name.map_err(io::Error::other)?;
        let connecting = TlsConnector::from(Arc::new(tls)).connect(server_name, outside);
        let outside = match timeout(FIRST_BYTES_TIMEOUT, connecting).await? {
            Ok(outside) => outside,
            Err(error) => return guest.tell_tls_failure(name, hello, stream, &error).await,
        };
        let chosen = outside.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let is_h2 = chosen.as_deref() == Some(H2);
        let inside = guest.accept_tls(name, hello, stream, chosen).await?;
        let site = self.site(Scheme::Https);
        if is_h2 {
            return Ok(proxy::http2(site, inside, outside).await?);
        }
        Ok(proxy::http1(site, inside, outside).await?)
    }

    fn denial(&self, reason: Reason) -> Denial {
        self.guest.denial(self.name.as_str(), self.port, reason)
    }

    fn site(&self, scheme: Scheme) -> Arc<Site> {
        Arc::new(Site {
            guest: Arc::clone(&self.guest),
            name: self.name.clone(),
            port: self.port,
            grant: Arc::clone(&self.grant),
            scheme,
        })
    }

    async fn dial(&self) -> Result<Metered<TcpStream>, DialError> {
        let outside = self.guest.broker.dial(&self.name, self.port).await?;
        let (meter, traffic) = (&self.guest.meter, &self.traffic);
        Ok(Metered::new(
            outside,
            Arc::clone(meter),
            Arc::clone(traffic),
        ))
    }
}

/// The client's protocols that we can carry, in its order.
fn common_protocols(offered: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let known = offered.iter().filter(|own| *own == H2 || *own == HTTP_1_1);
    known.cloned().collect()
}

/// Carries bytes both ways until both sides have ended.
async fn splice(mut inside: impl Stream, mut outside: impl Stream) -> Result<(), ServeError> {
    tokio::io::copy_bidirectional(&mut inside, &mut outside).await?;
    outside.shutdown().await.ok();
    Ok(())
}

/// A stream some of whose bytes were read already.
pub(crate) struct Prefixed<S> {
    prefix: BytesMut,
    stream: S,
}

impl<S> Prefixed<S> {
    fn new(prefix: BytesMut, stream: S) -> Self {
        Self { prefix, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..count]);
        self.prefix.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
