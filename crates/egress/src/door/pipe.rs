//! Carries single requests of a connection to the hosts that they name.

use std::sync::Arc;

use ::http::uri::{Authority, PathAndQuery, Uri};
use ::http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::ProxyTarget;
use crate::HostName;
use crate::guest::Guest;
use crate::http::{self, Body, Http1};

/// Bytes between a program and the rest of the broker, each way.
const PIPE_BYTES: usize = 64 * 1024;

/// The way of one connection's requests to the rest of the broker.
pub(crate) struct Pipes {
    guest: Arc<Guest>,
    /// To the host of the latest request.
    latest: Mutex<Option<Pipe>>,
}

/// A connection to the rest of the broker, as if the program had made it itself.
struct Pipe {
    target: ProxyTarget,
    sender: Http1,
    served: JoinHandle<()>,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Pipes {
    pub(crate) fn new(guest: &Arc<Guest>) -> Self {
        Self {
            guest: Arc::clone(guest),
            latest: Mutex::default(),
        }
    }

    /// Answers a request that came to the address of refused names: with what the host that it names
    /// answers, if that depends on somebody's word.
    pub(crate) async fn answer_or_refuse(
        &self,
        request: Request<Incoming>,
        port: u16,
    ) -> Response<Body> {
        let authority = http::authority(&request);
        let host = authority.as_ref().map(Authority::host);
        let name = host.and_then(|host| HostName::parse(host).ok());
        match name {
            Some(name) if self.guest.is_asked(&name, port) => {
                self.answer(request, ProxyTarget { name, port }).await
            }
            _ => {
                let denial = self.guest.refused(host.unwrap_or("(no name)"), port);
                http::boxed(denial.page())
            }
        }
    }

    /// Answers a request as its host does.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        target: ProxyTarget,
    ) -> Response<Body> {
        let sent = self.send(request, target).await;
        sent.unwrap_or_else(|error| {
            let text = format!("the request could not be carried: {error}");
            http::boxed(http::page(StatusCode::BAD_GATEWAY, &text))
        })
    }

    async fn send(
        &self,
        mut request: Request<Incoming>,
        target: ProxyTarget,
    ) -> Result<Response<Body>, hyper::Error> {
        let mut latest = self.latest.lock().await;
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        let headers = request.headers_mut();
        headers.remove("proxy-connection");
        headers.remove(header::PROXY_AUTHORIZATION);
        let is_usable = |pipe: &Pipe| pipe.target == target && !pipe.sender.is_closed();
        if !latest.as_ref().is_some_and(is_usable) {
            *latest = None;
        }
        let own = match &mut *latest {
            Some(own) => own,
            none => none.insert(self.open(target).await?),
        };
        let request = request.map(|body| body.map_err(Into::into).boxed());
        let response = own.sender.send(request).await?;
        Ok(response.map(|body| body.map_err(Into::into).boxed()))
    }

    async fn open(&self, target: ProxyTarget) -> Result<Pipe, hyper::Error> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let guest = Arc::clone(&self.guest);
        let ProxyTarget { name, port } = target.clone();
        let served = tokio::spawn(async move {
            if let Err(error) = guest.serve_name(&name, port, far).await {
                tracing::debug!(%name, port, %error, "an egress connection ended early");
            }
        });
        Ok(Pipe {
            target,
            sender: Http1::open(near).await?,
            served,
        })
    }
}
