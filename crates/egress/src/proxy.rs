//! HTTP between a container and one host, request by request.
//!
//! Each connection inside has one connection outside, which no other container uses. Requests are
//! parsed and written anew, so nothing can be smuggled between two readers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Uri};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn as client;
use hyper::server::conn as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Mutex;

use crate::HostName;
use crate::denial::{Denial, Reason};
use crate::guest::Guest;
use crate::policy::Grant;
use crate::serve::Stream;

/// How long a program may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 128;
const STREAMS_MAX: u32 = 100;

type Body = BoxBody<Bytes, hyper::Error>;

/// Headers that belong to one connection and are not passed on.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What a connection was opened for.
pub(crate) struct Site {
    pub(crate) guest: Arc<Guest>,
    pub(crate) name: HostName,
    pub(crate) port: u16,
    pub(crate) grant: Arc<Grant>,
    pub(crate) scheme: Scheme,
}

/// How the host is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The connection to the host, of either protocol.
enum Outside {
    Http1(Mutex<client::http1::SendRequest<Body>>),
    Http2(client::http2::SendRequest<Body>),
}

/// Carries HTTP/1.1 on both sides.
pub(crate) async fn http1(
    site: Arc<Site>,
    inside: impl Stream,
    outside: impl Stream,
) -> Result<(), hyper::Error> {
    let (sender, connection) = client::http1::handshake(TokioIo::new(outside)).await?;
    let connection = tokio::spawn(connection.with_upgrades());
    let outside = Arc::new(Outside::Http1(Mutex::new(sender)));
    let answer = service_fn(move |request| {
        let (site, outside) = (Arc::clone(&site), Arc::clone(&outside));
        async move { Ok::<_, Infallible>(site.answer(request, &outside).await) }
    });
    let served = http1_server()
        .serve_connection(TokioIo::new(inside), answer)
        .with_upgrades()
        .await;
    connection.abort();
    served
}

/// Carries HTTP/2 on both sides.
pub(crate) async fn http2(
    site: Arc<Site>,
    inside: impl Stream,
    outside: impl Stream,
) -> Result<(), hyper::Error> {
    let handshake = client::http2::handshake(TokioExecutor::new(), TokioIo::new(outside));
    let (sender, connection) = handshake.await?;
    let connection = tokio::spawn(connection);
    let outside = Arc::new(Outside::Http2(sender));
    let answer = service_fn(move |request| {
        let (site, outside) = (Arc::clone(&site), Arc::clone(&outside));
        async move { Ok::<_, Infallible>(site.answer(request, &outside).await) }
    });
    let served = http2_server()
        .serve_connection(TokioIo::new(inside), answer)
        .await;
    connection.abort();
    served
}

/// Gives every request of a connection the same answer.
pub(crate) async fn answer_all(
    inside: impl Stream,
    is_h2: bool,
    page: impl Fn() -> Response<Full<Bytes>>,
) -> Result<(), hyper::Error> {
    let answer = service_fn(|_| std::future::ready(Ok::<_, Infallible>(page())));
    if is_h2 {
        let connection = http2_server().serve_connection(TokioIo::new(inside), answer);
        return connection.await;
    }
    let connection = http1_server().serve_connection(TokioIo::new(inside), answer);
    connection.await
}

/// Refuses each request by the host that it names.
pub(crate) async fn answer_by_host(
    inside: impl Stream,
    refuse: impl Fn(&str) -> Denial,
) -> Result<(), hyper::Error> {
    let answer = service_fn(|request: Request<Incoming>| {
        let host = authority(&request).map_or_else(
            || "(no name)".to_owned(),
            |authority| authority.host().to_owned(),
        );
        std::future::ready(Ok::<_, Infallible>(refuse(&host).page()))
    });
    let connection = http1_server().serve_connection(TokioIo::new(inside), answer);
    connection.await
}

fn http1_server() -> server::http1::Builder {
    let mut builder = server::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(true);
    builder
}

fn http2_server() -> server::http2::Builder<TokioExecutor> {
    let mut builder = server::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}

impl Site {
    async fn answer(&self, request: Request<Incoming>, outside: &Outside) -> Response<Body> {
        if !self.is_for_us(&request) {
            return boxed(misdirected());
        }
        if let Err(reason) = self.check(&request) {
            let denial = self.guest.denial(self.name.as_str(), self.port, reason);
            self.guest.record(&denial);
            return boxed(denial.page());
        }
        match self.forward(request, outside).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(host = %self.name, %error, "a host did not answer a request");
                let text = format!(
                    "# egress to {}: the host did not answer: {error}\n",
                    self.name
                );
                boxed(bad_gateway(&text))
            }
        }
    }

    /// Whether each place that names a host names this one.
    fn is_for_us(&self, request: &Request<Incoming>) -> bool {
        let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
        let is_h2 = request.version() == Version::HTTP_2;
        let count_is_right = if is_h2 {
            hosts.len() <= 1
        } else {
            hosts.len() == 1
        };
        let named = hosts.iter().map(|host| host.to_str().ok()?.parse().ok());
        let in_target = request.uri().authority().cloned().map(Some);
        let mut all = named.chain(in_target).peekable();
        count_is_right
            && all.peek().is_some()
            && all.all(|authority: Option<Authority>| {
                authority.is_some_and(|authority| self.is_named_by(&authority))
            })
    }

    fn is_named_by(&self, authority: &Authority) -> bool {
        let port = authority.port_u16().unwrap_or(self.scheme.port());
        !authority.as_str().contains('@')
            && port == self.port
            && HostName::parse(authority.host()).is_ok_and(|name| name == self.name)
    }

    /// Whether the profile allows the request.
    fn check(&self, request: &Request<Incoming>) -> Result<(), Reason> {
        let method = request.method();
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return Err(Reason::Method(method.to_string()));
        }
        // A policy that has changed meanwhile decides, and not the one of the connection's start.
        let profile = self.guest.broker.profile(&self.guest.profile);
        let grant = match profile.map(|profile| profile.decide(&self.name, self.port)) {
            Some(Ok(grant)) => grant,
            Some(Err(refusal)) => return Err(Reason::Policy(refusal)),
            None => Arc::clone(&self.grant),
        };
        if let Some(protocol) = request.headers().get(header::UPGRADE) {
            let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
            if !is_websocket || grant.access.needs_requests() {
                return Err(Reason::Method("Upgrade".to_owned()));
            }
        }
        let (path, query) = (request.uri().path(), request.uri().query());
        let has_body = !request.body().is_end_stream();
        if grant.access.allows(method.as_str(), path, query, has_body) {
            return Ok(());
        }
        Err(Reason::Request {
            method: method.to_string(),
            path: path.to_owned(),
        })
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        outside: &Outside,
    ) -> Result<Response<Body>, hyper::Error> {
        let upgrade = request.headers().get(header::UPGRADE).cloned();
        let inside = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        self.rewrite(&mut request);
        if let Some(protocol) = upgrade {
            let headers = request.headers_mut();
            headers.insert(
                header::CONNECTION,
                http::HeaderValue::from_static("upgrade"),
            );
            headers.insert(header::UPGRADE, protocol);
        }
        let request = request.map(BodyExt::boxed);
        let mut response = match outside {
            Outside::Http1(sender) => {
                let mut sender = sender.lock().await;
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Outside::Http2(sender) => sender.clone().send_request(request).await?,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(inside) = inside {
                tokio::spawn(join(inside, hyper::upgrade::on(&mut response)));
            }
            return Ok(response.map(BodyExt::boxed));
        }
        remove_hop_by_hop(response.headers_mut());
        Ok(response.map(BodyExt::boxed))
    }

    /// Brings a request into the form that the host expects, with nothing of our connection in it.
    fn rewrite(&self, request: &mut Request<Incoming>) {
        remove_hop_by_hop(request.headers_mut());
        let path = request.uri().path_and_query().cloned();
        let path = path.map_or_else(|| "/".to_owned(), |path| path.to_string());
        let is_h2 = request.version() == Version::HTTP_2;
        let authority = if self.port == self.scheme.port() {
            self.name.to_string()
        } else {
            format!("{}:{}", self.name, self.port)
        };
        let target = if is_h2 {
            request.headers_mut().remove(header::HOST);
            format!("{}://{authority}{path}", self.scheme.as_str())
        } else {
            if let Ok(host) = authority.parse() {
                request.headers_mut().insert(header::HOST, host);
            }
            path
        };
        if let Ok(target) = target.parse::<Uri>() {
            *request.uri_mut() = target;
        }
    }
}

/// Carries an upgraded connection until both sides have ended.
async fn join(inside: hyper::upgrade::OnUpgrade, outside: hyper::upgrade::OnUpgrade) {
    if let (Ok(inside), Ok(outside)) = (inside.await, outside.await) {
        let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
    }
}

/// Removes what concerns one connection, whatever `Connection` names included.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

fn authority(request: &Request<Incoming>) -> Option<Authority> {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()?.parse().ok());
    request.uri().authority().cloned().or(host)
}

/// The request is for another host than the connection.
fn misdirected() -> Response<Full<Bytes>> {
    let text = "# this connection was opened for another host\n";
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    let close = http::HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

pub(crate) fn bad_gateway(text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

fn boxed(response: Response<Full<Bytes>>) -> Response<Body> {
    response.map(|body| body.map_err(|never| match never {}).boxed())
}
