//! Serves one connection of a container, in this order: name, policy, first bytes, dial.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request, StatusCode};
use bytes::{Buf, BytesMut};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::HostName;
use crate::ask::Passage;
use crate::connection::Connection;
use crate::denial::{Denial, Reason};
use crate::door::Pipes;
use crate::guest::{Guest, Opened, Target};
use crate::hello::{self, HELLO_BYTES_MAX, Hello};
use crate::http;
use crate::policy::Refusal;
use crate::resolve::DialError;

/// How long a program may take for its first bytes, and a TLS handshake on either side.
pub(crate) const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);

/// The first byte of a TLS record that carries a handshake.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

pub(crate) const H2: &[u8] = b"h2";
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Why a connection ended early. Whoever is inside sees a reset; the operator's log has this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
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

    pub(crate) async fn serve_name(
        self: &Arc<Self>,
        name: &HostName,
        port: u16,
        stream: impl Stream,
    ) -> Result<(), ServeError> {
        let mut stream = Prefixed::new(BytesMut::new(), stream);
        let passage = if self.is_asked(name, port) {
            let answer = tokio::select! {
                answer = self.ask(name, port) => answer,
                () = stream.ended() => return Ok(()),
            };
            match answer {
                Ok(passage) => passage,
                Err(reason) => {
                    let denial = self.denial(name.as_str(), port, reason);
                    return self.refuse(denial, stream).await;
                }
            }
        } else {
            Passage::Listed
        };
        let (grant, permit) = match self.permit(name, port, passage) {
            Ok(permitted) => permitted,
            Err(denial) => return self.refuse(denial, stream).await,
        };
        let opened = Opened {
            host: name.clone(),
            port,
            rule: grant.rule.clone(),
        };
        self.observer.opened(&opened);
        let connection = Arc::new(Connection {
            guest: Arc::clone(self),
            name: name.clone(),
            port,
            grant,
            passage,
            traffic: Arc::default(),
        });
        let policies = self.broker.policies();
        let served = tokio::select! {
            served = connection.serve(stream) => served,
            refusal = connection.refused_later(policies) => {
                self.record(&connection.denial(Reason::Policy(refusal)));
                Ok(())
            }
        };
        let traffic = &connection.traffic;
        self.observer.closed(&opened, traffic.down(), traffic.up());
        drop(permit);
        served
    }

    /// A host whose certificate is not accepted is a 502 that says so, and not a mystery.
    pub(crate) async fn tell_tls_failure(
        &self,
        name: &HostName,
        hello: Hello,
        stream: impl Stream,
        error: &io::Error,
    ) -> Result<(), ServeError> {
        tracing::info!(host = %name, %error, "could not open TLS towards a host");
        let inside = self.accept_tls(name, hello, stream, None).await?;
        let text = format!("egress to {name}: TLS towards the host failed: {error}");
        let page = move || http::page(StatusCode::BAD_GATEWAY, &text);
        Ok(http::answer_all(inside, false, page).await?)
    }

    pub(crate) async fn accept_tls<S: Stream>(
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
    async fn serve_refusal(
        self: &Arc<Self>,
        port: u16,
        mut stream: impl Stream,
    ) -> Result<(), ServeError> {
        if port != 443 {
            return self.serve_plain_refusal(port, stream).await;
        }
        let hello = timeout(FIRST_BYTES_TIMEOUT, hello::read(&mut stream)).await??;
        let Some(name) = hello.name.clone() else {
            self.record(&self.denial("(no name)", port, Reason::NoServerName));
            return Ok(());
        };
        if self.is_asked(&name, port) {
            let stream = Prefixed::new(hello.bytes, stream);
            return self.serve_name(&name, port, stream).await;
        }
        let denial = self.reason_of(name.as_str(), Some(&name), port);
        self.refuse_tls(denial, &name, hello, stream).await
    }

    /// HTTP to the address of refused names. Each request says which name it wants.
    async fn serve_plain_refusal(
        self: &Arc<Self>,
        port: u16,
        stream: impl Stream,
    ) -> Result<(), ServeError> {
        let pipes = Arc::new(Pipes::new(self));
        let answer = move |request: Request<Incoming>| {
            let pipes = Arc::clone(&pipes);
            async move { pipes.answer_or_refuse(request, port).await }
        };
        Ok(http::answer_each(stream, answer).await?)
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
    pub(crate) async fn refuse_tls(
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
        Ok(http::answer_all(inside, is_h2, move || denial.page()).await?)
    }

    pub(crate) async fn refuse_http(
        &self,
        denial: Denial,
        stream: impl Stream,
    ) -> Result<(), ServeError> {
        self.record(&denial);
        Ok(http::answer_all(stream, false, move || denial.page()).await?)
    }

    /// The denial of a host that leads to the address of refused names, recorded.
    pub(crate) fn refused(&self, host: &str, port: u16) -> Denial {
        let name = HostName::parse(host).ok();
        let denial = self.reason_of(host, name.as_ref(), port);
        self.record(&denial);
        denial
    }

    fn reason_of(&self, host: &str, name: Option<&HostName>, port: u16) -> Denial {
        let decision = name.map(|name| self.decide(name, port, Passage::Listed));
        let reason = match decision {
            Some(Ok(_)) => Reason::Private,
            Some(Err(refusal)) => Reason::Policy(refusal),
            None => Reason::Policy(Refusal::NotListed),
        };
        self.denial(host, port, reason)
    }
}

/// A stream some of whose bytes were read already.
pub(crate) struct Prefixed<S> {
    prefix: BytesMut,
    stream: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(prefix: BytesMut, stream: S) -> Self {
        Self { prefix, stream }
    }

    /// Ends when the stream does. What comes before is kept, up to the length of a first message.
    async fn ended(&mut self)
    where
        S: AsyncRead + Unpin,
    {
        while self.prefix.len() < HELLO_BYTES_MAX {
            if let Ok(0) | Err(_) = self.stream.read_buf(&mut self.prefix).await {
                return;
            }
        }
        std::future::pending::<()>().await;
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
