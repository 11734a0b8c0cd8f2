//! The connection to the host, of either protocol.

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn as client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::{Body, Scheme};
use crate::connection::{ConnectError, Connection};
use crate::serve::Stream;

/// Where requests go.
pub(crate) enum Outside {
    /// One request after the other.
    Http1(Mutex<Http1>),
    /// Many at once.
    Http2(Http2),
    /// Like HTTP/1.1, but nobody is dialled before a request needs it: most are answered from the
    /// cache.
    Later(Mutex<Option<Http1>>),
}

/// One connection of HTTP/1.1.
pub(crate) struct Http1 {
    sender: client::http1::SendRequest<Body>,
    _driver: Driver,
}

/// One connection of HTTP/2.
pub(crate) struct Http2 {
    sender: client::http2::SendRequest<Body>,
    _driver: Driver,
}

/// The task that moves a connection's bytes. It ends with its connection.
pub(crate) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a host gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutsideError {
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Http1 {
    pub(crate) async fn open(stream: impl Stream) -> Result<Self, hyper::Error> {
        let (sender, connection) = client::http1::handshake(TokioIo::new(stream)).await?;
        let driving = tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Self {
            sender,
            _driver: Driver(driving),
        })
    }

    /// Whether another request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}

impl Outside {
    /// A connection that has been made already.
    pub(crate) async fn http1(stream: impl Stream) -> Result<Self, hyper::Error> {
        Ok(Self::Http1(Mutex::new(Http1::open(stream).await?)))
    }

    /// The same with HTTP/2.
    pub(crate) async fn http2(stream: impl Stream) -> Result<Self, hyper::Error> {
        let handshake = client::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        let driving = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self::Http2(Http2 {
            sender,
            _driver: Driver(driving),
        }))
    }

    /// A connection that is made when a request needs it.
    pub(crate) fn later() -> Self {
        Self::Later(Mutex::default())
    }

    pub(super) fn is_h2(&self) -> bool {
        matches!(self, Self::Http2(..))
    }

    pub(super) async fn send(
        &self,
        request: Request<Body>,
        connection: &Connection,
        scheme: Scheme,
    ) -> Result<Response<Incoming>, OutsideError> {
        match self {
            Self::Http1(own) => Ok(own.lock().await.send(request).await?),
            Self::Http2(own) => Ok(own.sender.clone().send_request(request).await?),
            Self::Later(own) => {
                let mut own = own.lock().await;
                if own.as_ref().is_none_or(Http1::is_closed) {
                    *own = None;
                }
                let sender = match &mut *own {
                    Some(sender) => sender,
                    none => none.insert(connection.http1(scheme).await?),
                };
                Ok(sender.send(request).await?)
            }
        }
    }
}
