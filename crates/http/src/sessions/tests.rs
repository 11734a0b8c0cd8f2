//! Sessions belong to their principal.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use hotcell_domain::{Caller, Name, Principal};
use http::request::Parts;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use rmcp::ServerHandler;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::{Guard, Http, HttpError, HttpLimits, HttpSettings, Identify, MCP_PATH};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;

/// Serves the protocol and nothing else.
#[derive(Clone)]
struct Bare;

impl ServerHandler for Bare {}

/// A header names the caller.
struct ByHeader;

impl Identify for ByHeader {
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, HttpError>> {
        let name = parts.headers["x-principal"].to_str().unwrap();
        let caller = Caller {
            principal: Principal::new(Name::parse(name).unwrap()),
            ..Caller::local()
        };
        Box::pin(std::future::ready(Ok(caller)))
    }
}

fn served(stop: &CancellationToken) -> Http {
    served_within(HttpLimits::default(), stop)
}

fn served_within(limits: HttpLimits, stop: &CancellationToken) -> Http {
    let settings = HttpSettings {
        path: MCP_PATH.to_owned(),
        guard: Guard::new(["box.example"]).unwrap(),
        limits,
        identify: Arc::new(ByHeader),
    };
    Http::new(Bare, axum::Router::new(), &settings, stop)
}

async fn ask(
    http: &Http,
    principal: &str,
    method: Method,
    session: Option<&str>,
    body: &'static str,
) -> Response {
    ask_at(http, MCP_PATH, principal, method, session, body).await
}

async fn ask_at(
    http: &Http,
    path: &str,
    principal: &str,
    method: Method,
    session: Option<&str>,
    body: &'static str,
) -> Response {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "box.example")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("x-principal", principal);
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let request = request.body(Body::from(body)).unwrap();
    http.router.clone().call(request).await.unwrap()
}

/// All that a client can see of a response that ends.
async fn seen(response: Response) -> String {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    format!("{} {:?} {body:?}", parts.status, parts.headers)
}

#[tokio::test]
async fn to_another_principal_a_session_does_not_exist() {
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let http = served(&stop);
    let opened = ask(&http, "owner", Method::POST, None, INITIALIZE).await;
    assert_eq!(opened.status(), 200);
    let session = opened.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    drop(opened);
    let unknown = "00000000-0000-0000-0000-000000000000";
    for (method, body) in [
        (Method::POST, PING),
        (Method::GET, ""),
        (Method::DELETE, ""),
    ] {
        let foreign = ask(&http, "eve", method.clone(), Some(&session), body).await;
        let missing = ask(&http, "eve", method.clone(), Some(unknown), body).await;
        assert_eq!(seen(foreign).await, seen(missing).await, "{method}");
        let own = ask(&http, "owner", Method::POST, Some(&session), PING).await;
        assert_eq!(own.status(), 200, "after a {method} of eve's");
    }
    assert_eq!(http.sessions(), 1);
    let ended = ask(&http, "owner", Method::DELETE, Some(&session), "").await;
    assert!(ended.status().is_success());
    assert_eq!(http.sessions(), 0);
}

#[tokio::test]
async fn whoever_opens_many_sessions_closes_its_own_and_not_those_of_others() {
    let stop = CancellationToken::new();
    let limits = HttpLimits {
        sessions_max: 8,
        ..HttpLimits::default()
    };
    let http = served_within(limits, &stop);
    let open = async |principal: &str| {
        let response = ask(&http, principal, Method::POST, None, INITIALIZE).await;
        let session = response.headers()["mcp-session-id"].to_str();
        session.expect("a session").to_owned()
    };
    let is_open = async |principal: &str, session: &str| {
        let response = ask(&http, principal, Method::POST, Some(session), PING).await;
        response.status().is_success()
    };
    let mine = [open("ann").await, open("ann").await];
    let first = open("eve").await;
    for _ in 0..20 {
        open("eve").await;
    }
    assert_eq!(http.sessions(), 8);
    for session in &mine {
        assert!(is_open("ann", session).await, "it was there first");
    }
    assert!(!is_open("eve", &first).await);
    stop.cancel();
}

#[tokio::test]
async fn whoever_has_most_sessions_in_use_makes_room_for_who_has_none() {
    let stop = CancellationToken::new();
    let limits = HttpLimits {
        sessions_max: 4,
        ..HttpLimits::default()
    };
    let http = served_within(limits, &stop);
    let open = async |principal: &str| {
        let opened = ask(&http, principal, Method::POST, None, INITIALIZE).await;
        let session = opened.headers().get("mcp-session-id");
        let session = session.map(|session| session.to_str().unwrap().to_owned());
        (opened.status().as_u16(), session)
    };
    let mut streams = Vec::new();
    for _ in 0..4 {
        let session = open("eve").await.1.expect("a session");
        let stream = ask(&http, "eve", Method::GET, Some(&session), "").await;
        assert_eq!(stream.status(), 200);
        streams.push((session, stream));
    }
    // Her own do not make room for one more of hers, and ann gets two: as many as eve then has.
    assert_eq!(open("eve").await.0, 503);
    for expected in [200, 200, 503] {
        let (status, session) = open("ann").await;
        assert_eq!(status, expected);
        if let Some(session) = session {
            let stream = ask(&http, "ann", Method::GET, Some(&session), "").await;
            streams.push((session, stream));
        }
    }
    let (first, stream) = streams.swap_remove(0);
    assert!(stream.into_body().collect().await.is_ok(), "it ends");
    let gone = ask(&http, "eve", Method::POST, Some(&first), PING).await;
    assert_eq!(gone.status(), 404);
    stop.cancel();
}

#[tokio::test]
async fn whoever_has_half_of_all_sessions_takes_none_from_who_has_fewer() {
    let stop = CancellationToken::new();
    let limits = HttpLimits {
        sessions_max: 4,
        ..HttpLimits::default()
    };
    let http = served_within(limits, &stop);
    let open = async |principal: &str| {
        let opened = ask(&http, principal, Method::POST, None, INITIALIZE).await;
        let session = opened.headers().get("mcp-session-id");
        session.map(|session| session.to_str().unwrap().to_owned())
    };
    let idle = open("ann").await.expect("a session");
    let mut streams = Vec::new();
    for _ in 0..3 {
        let session = open("eve").await.expect("a session");
        streams.push(ask(&http, "eve", Method::GET, Some(&session), "").await);
    }
    assert_eq!(open("eve").await, None);
    let mine = ask(&http, "ann", Method::POST, Some(&idle), PING).await;
    assert_eq!(mine.status(), 200);
    stop.cancel();
}

#[tokio::test]
async fn whoever_has_most_sse_sessions_makes_room_for_who_has_none() {
    let stop = CancellationToken::new();
    let limits = HttpLimits {
        sse_sessions_max: 4,
        ..HttpLimits::default()
    };
    let http = served_within(limits, &stop);
    let open =
        async |principal: &str| ask_at(&http, "/sse", principal, Method::GET, None, "").await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(open("eve").await);
    }
    assert_eq!(open("eve").await.status(), 503);
    for expected in [200, 200, 503] {
        let opened = open("ann").await;
        assert_eq!(opened.status(), expected);
        streams.push(opened);
    }
    // The oldest two ended; with what they sent, the name of their session, comes the end.
    for stream in streams.drain(..2) {
        assert!(stream.into_body().collect().await.is_ok(), "it ends");
    }
    stop.cancel();
}
