//! `/v1/containers/{id}/ports/{port}/…`: a reverse proxy to a server inside a container.
//!
//! What the container answers is shown under this server's own origin, so each answer is put into a
//! sandbox: a browser gives its page an origin of its own, which may call nothing here. Whoever wants
//! the application as it is uses `hotcell forward`.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use hotcell_domain::{Caller, ContainerRef};
use http::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName, ORIGIN, REFERER, UPGRADE,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::Endpoints;
use super::port_headers::{self, Prefix};
use super::target;
use crate::error::HttpError;

/// How long a server inside may take until the head of its answer.
const HEAD_TIMEOUT: Duration = Duration::from_mins(2);

/// The head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A page may run scripts and show itself, but is not of our origin.
const SANDBOX: HeaderValue =
    HeaderValue::from_static("sandbox allow-scripts allow-forms allow-popups allow-modals");

/// Headers of a request that are ours, or tell about us, and stay outside. `Authorization` holds
/// the caller's token.
const NOT_INSIDE: [HeaderName; 5] = [AUTHORIZATION, COOKIE, ORIGIN, REFERER, HOST];

/// Passes a request to a port of a container.
pub(super) async fn forward(
    State(endpoints): State<Endpoints>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
) -> Result<Response, HttpError> {
    let container = target::container(request.uri())?;
    let (port, prefix) = port_and_prefix(request.uri()).ok_or_else(HttpError::no_such_path)?;
    let upgrade = port_headers::websocket(request.headers());
    let ours = upgrade.then(|| hyper::upgrade::on(&mut request));
    let asked = rewrite(request, &prefix, port, upgrade)?;
    let mut answer = ask(&endpoints, &caller, &container, port, asked).await?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(ours) = ours else {
            return Err(bad_answer("it switches protocols without being asked"));
        };
        let theirs = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) {
                let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
            }
        });
    }
    let (mut parts, body) = answer.into_parts();
    parts.version = Version::HTTP_11;
    port_headers::clean_answer(&mut parts.headers, &prefix, port, upgrade);
    parts.headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// Sends a request over a connection of its own; returns the head of the answer with its body.
async fn ask(
    endpoints: &Endpoints,
    caller: &Caller,
    container: &ContainerRef,
    port: u16,
    request: Request,
) -> Result<http::Response<hyper::body::Incoming>, HttpError> {
    let stream = endpoints.service.open_port(caller, container, port).await?;
    let shaken = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = shaken.await.map_err(|error| failed(&error))?;
    // It ends with the answer's body, or when either side closes.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection into a container ended badly");
        }
    });
    let answer = tokio::time::timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
    let answer = answer.map_err(|_| {
        let message = "the server inside did not answer in time";
        HttpError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "deadline_exceeded",
            message,
            "look at its output with `hotcell logs`",
        )
    })?;
    answer.map_err(|error| failed(&error))
}

/// The request as the server inside sees it: as if somebody beside it had sent it.
fn rewrite(
    request: Request,
    prefix: &Prefix,
    port: u16,
    is_upgrade: bool,
) -> Result<Request, HttpError> {
    let (mut parts, body) = request.into_parts();
    let path = prefix.below(parts.uri.path()).to_owned();
    let path = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    parts.uri = path
        .parse::<Uri>()
        .map_err(|_| HttpError::invalid("the path cannot be one"))?;
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
    let had_cookies = parts.headers.get(COOKIE).cloned();
    let had_origin = parts.headers.contains_key(ORIGIN);
    port_headers::remove_hop_by_hop(&mut parts.headers, is_upgrade);
    for name in NOT_INSIDE {
        parts.headers.remove(name);
    }
    set_origin(&mut parts.headers, port, had_origin);
    // Browsers send only those of this path, where `clean_answer` has put them.
    if let Some(cookies) = had_cookies {
        parts.headers.insert(COOKIE, cookies);
    }
    Ok(Request::from_parts(parts, body))
}

/// Development servers refuse names that they do not know; everyone knows this one.
fn set_origin(headers: &mut HeaderMap, port: u16, had_origin: bool) {
    let local = |text: String| HeaderValue::from_str(&text).ok();
    if let Some(host) = local(format!("localhost:{port}")) {
        headers.insert(HOST, host);
    }
    if let Some(origin) = local(format!("http://localhost:{port}")).filter(|_| had_origin) {
        headers.insert(ORIGIN, origin);
    }
    if headers.get(UPGRADE).is_some() {
        headers.insert(
            http::header::CONNECTION,
            HeaderValue::from_static("upgrade"),
        );
    }
}

/// The port in a URL's path, and the path that belongs to it.
fn port_and_prefix(uri: &Uri) -> Option<(u16, Prefix)> {
    let rest = uri.path().strip_prefix("/v1/containers/")?;
    let (container, rest) = rest.split_once('/')?;
    let rest = rest.strip_prefix("ports/")?;
    let digits = rest.split('/').next()?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = digits.parse().ok().filter(|port| *port > 0 && is_plain)?;
    let prefix = Prefix::new(format!("/v1/containers/{container}/ports/{digits}"));
    Some((port, prefix))
}

fn failed(error: &hyper::Error) -> HttpError {
    tracing::debug!(%error, "a server inside a container could not be asked");
    bad_answer("the server inside closed the connection, or does not speak HTTP")
}

fn bad_answer(message: &str) -> HttpError {
    HttpError::new(
        StatusCode::BAD_GATEWAY,
        "unavailable",
        message,
        "look at its output with `hotcell logs`; for other protocols use `hotcell forward`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_port_is_a_port() {
        let parse = |path: &str| port_and_prefix(&path.parse().unwrap()).map(|(port, _)| port);
        assert_eq!(parse("/v1/containers/c/ports/80"), Some(80));
        assert_eq!(parse("/v1/containers/c/ports/8080/a/b?c"), Some(8080));
        for wrong in ["0/", "65536/", "+80/", "80a/", "/", "-1/"] {
            let path = format!("/v1/containers/c/ports/{wrong}");
            assert_eq!(parse(&path), None, "{path}");
        }
    }

    #[test]
    fn the_token_stays_outside_and_the_rest_goes_in() {
        let request = Request::builder()
            .uri("/v1/containers/c/ports/80/a%2fb/?x=%31")
            .header("authorization", "Bearer secret")
            .header("host", "hotcell.example.com")
            .header("origin", "https://hotcell.example.com")
            .header("connection", "close, x-private")
            .header("x-private", "1")
            .header("x-forwarded-for", "10.0.0.1")
            .header("accept", "text/html")
            .body(Body::empty())
            .unwrap();
        let (port, prefix) = port_and_prefix(request.uri()).unwrap();
        let inside = rewrite(request, &prefix, port, false).unwrap();
        assert_eq!(inside.uri(), "/a%2fb/?x=%31");
        let mut names: Vec<_> = inside.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "origin"]);
        assert_eq!(inside.headers()["origin"], "http://localhost:80");
    }
}
