//! A connection that the profile allows: first bytes, dial, then splice or HTTP.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::HostName;
use crate::ask::Passage;
use crate::denial::{Denial, Reason};
use crate::guest::Guest;
use crate::hello::{self, Hello};
use crate::http::{self, Http1, Outside, Scheme, Site};
use crate::meter::{Metered, Traffic};
use crate::policy::{Grant, Policy, Refusal};
use crate::resolve::DialError;
use crate::serve::{
    FIRST_BYTES_TIMEOUT, H2, HTTP_1_1, Prefixed, ServeError, Stream, TLS_HANDSHAKE,
};
use crate::splice::splice;

/// A connection that the profile allows.
pub(crate) struct Connection {
    pub(crate) guest: Arc<Guest>,
    pub(crate) name: HostName,
    pub(crate) port: u16,
    pub(crate) grant: Arc<Grant>,
    pub(crate) passage: Passage,
    pub(crate) traffic: Arc<Traffic>,
}

/// Why a host could not be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("TLS towards the host failed: {0}")]
    Tls(io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl Connection {
    pub(crate) async fn serve(self: &Arc<Self>, mut stream: impl Stream) -> Result<(), ServeError> {
        if !self.grant.is_opened() && !matches!(self.port, 80 | 443) {
            return Ok(splice(stream, self.dial().await?).await?);
        }
        let first = timeout(FIRST_BYTES_TIMEOUT, stream.read_u8()).await??;
        let stream = Prefixed::new(BytesMut::from(&[first][..]), stream);
        match first {
            TLS_HANDSHAKE => self.serve_tls(stream).await,
            _ if self.port == 443 || self.grant.secret.is_some() => {
                self.guest.record(&self.denial(Reason::NoServerName));
                Ok(())
            }
            _ => self.serve_plain(stream).await,
        }
    }

    /// What decides about it now.
    pub(crate) fn decide(&self) -> Result<Arc<Grant>, Refusal> {
        self.guest.decide(&self.name, self.port, self.passage)
    }

    /// Ends when a policy or an answer refuses this connection, or a policy wants to see what it has not
    /// seen so far.
    pub(crate) async fn refused_later(
        &self,
        mut policies: watch::Receiver<Arc<Policy>>,
    ) -> Refusal {
        let mut answers = self.guest.answers.subscribe();
        loop {
            // Both senders live as long as the guest.
            tokio::select! {
                _ = policies.changed() => {}
                _ = answers.changed() => {}
            }
            match self.decide() {
                Ok(grant) if grant.is_opened() && !self.grant.is_opened() => {
                    return Refusal::NotListed;
                }
                Ok(_) => {}
                Err(refusal) => return refusal,
            }
        }
    }

    /// HTTP without TLS is always read: its requests say where they go.
    async fn serve_plain(self: &Arc<Self>, stream: impl Stream) -> Result<(), ServeError> {
        let site = Site::new(Arc::clone(self), Scheme::Http);
        if self.grant.cache {
            return Ok(http::serve_http1(site, stream, Outside::later()).await?);
        }
        let outside = match self.dial().await {
            Ok(outside) => outside,
            Err(DialError::Private) => {
                let denial = self.denial(Reason::Private);
                return self.guest.refuse_http(denial, stream).await;
            }
            Err(error) => return Err(error.into()),
        };
        let outside = Outside::http1(outside).await?;
        Ok(http::serve_http1(site, stream, outside).await?)
    }

    async fn serve_tls(self: &Arc<Self>, mut stream: impl Stream) -> Result<(), ServeError> {
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
        if self.grant.cache && hello.can_speak(HTTP_1_1) {
            return self.open_later(hello, stream).await;
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
        if self.grant.is_opened() {
            return self.open_tls(hello, stream, outside).await;
        }
        let stream = Prefixed::new(hello.bytes, stream);
        Ok(splice(stream, outside).await?)
    }

    /// Ends TLS here and begins it anew towards the host, with the protocol that the host chose.
    async fn open_tls(
        self: &Arc<Self>,
        hello: Hello,
        stream: impl Stream,
        outside: Metered<TcpStream>,
    ) -> Result<(), ServeError> {
        let (guest, name) = (&self.guest, &self.name);
        let protocols = common_protocols(&hello.protocols);
        let outside = match guest.broker.connect_tls(outside, name, protocols).await {
            Ok(outside) => outside,
            Err(error) => return guest.tell_tls_failure(name, hello, stream, &error).await,
        };
        let chosen = outside.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let is_h2 = chosen.as_deref() == Some(H2);
        let inside = guest.accept_tls(name, hello, stream, chosen).await?;
        let site = Site::new(Arc::clone(self), Scheme::Https);
        if is_h2 {
            let outside = Outside::http2(outside).await?;
            return Ok(http::serve_http2(site, inside, outside).await?);
        }
        let outside = Outside::http1(outside).await?;
        Ok(http::serve_http1(site, inside, outside).await?)
    }

    /// Ends TLS here, and dials when a request is not in the cache.
    async fn open_later(
        self: &Arc<Self>,
        hello: Hello,
        stream: impl Stream,
    ) -> Result<(), ServeError> {
        let protocol = (!hello.protocols.is_empty()).then(|| HTTP_1_1.to_vec());
        let accepting = self.guest.accept_tls(&self.name, hello, stream, protocol);
        let inside = accepting.await?;
        let site = Site::new(Arc::clone(self), Scheme::Https);
        Ok(http::serve_http1(site, inside, Outside::later()).await?)
    }

    /// Dials for HTTP/1.1.
    pub(crate) async fn http1(&self, scheme: Scheme) -> Result<Http1, ConnectError> {
        let outside = self.dial().await?;
        let broker = &self.guest.broker;
        broker.http1_over(outside, &self.name, scheme).await
    }

    pub(crate) fn denial(&self, reason: Reason) -> Denial {
        self.guest.denial(self.name.as_str(), self.port, reason)
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
