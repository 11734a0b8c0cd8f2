//! HTTP between a container and one host, request by request.
//!
//! Each connection inside has one connection outside, which no other container uses. Requests are
//! parsed and written anew, so nothing can be smuggled between two readers.

mod exchange;
mod headers;
mod outside;
mod site;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::serve::Stream;

pub(crate) use self::headers::remove_hop_by_hop;
pub(crate) use self::outside::{Http1, Outside};
pub(crate) use self::site::{Scheme, Site};

/// How long a program may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 128;
const STREAMS_MAX: u32 = 100;
/// Streams that a program may open and reset before its connection ends.
const RESETS_MAX: usize = 200;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = BoxBody<Bytes, BoxError>;

/// Carries HTTP/1.1 towards the container.
pub(crate) async fn serve_http1(
    site: Arc<Site>,
    inside: impl Stream,
    outside: Outside,
) -> Result<(), hyper::Error> {
    let (own, outside) = (Arc::clone(&site), Arc::new(outside));
    let answer = service_fn(move |request| {
        let (site, outside) = (Arc::clone(&own), Arc::clone(&outside));
        async move { Ok::<_, Infallible>(site.answer(request, &outside).await) }
    });
    let served = http1_server()
        .serve_connection(TokioIo::new(inside), answer)
        .with_upgrades()
        .await;
    if let Some(upgraded) = site.take_upgraded() {
        upgraded.await;
    }
    served
}

/// Carries HTTP/2 towards the container.
pub(crate) async fn serve_http2(
    site: Arc<Site>,
    inside: impl Stream,
    outside: Outside,
) -> Result<(), hyper::Error> {
    let outside = Arc::new(outside);
    let answer = service_fn(move |request| {
        let (site, outside) = (Arc::clone(&site), Arc::clone(&outside));
        async move { Ok::<_, Infallible>(site.answer(request, &outside).await) }
    });
    let connection = http2_server().serve_connection(TokioIo::new(inside), answer);
    connection.await
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

/// Answers each request of a connection by itself. A program that ends its side while a request waits
/// has gone.
pub(crate) async fn answer_each<F>(
    inside: impl Stream,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Result<(), hyper::Error>
where
    F: Future<Output = Response<Body>>,
{
    let answer = service_fn(|request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let mut server = http1_server();
    server.half_close(false);
    server.serve_connection(TokioIo::new(inside), answer).await
}

pub(crate) fn http1_server() -> server::http1::Builder {
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
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}

/// What a request says that it is for.
pub(crate) fn authority(request: &Request<Incoming>) -> Option<Authority> {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()?.parse().ok());
    request.uri().authority().cloned().or(host)
}

/// An answer of the broker itself, as text that a shell ignores.
pub(crate) fn page(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("# {text}\n"))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

pub(crate) fn boxed(response: Response<Full<Bytes>>) -> Response<Body> {
    response.map(|body| body.map_err(|never| match never {}).boxed())
}
