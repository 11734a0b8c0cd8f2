//! A request with a foreign host name is refused on every path, except health probes, which accept
//! any name.

use hotcell_http::Guard;
use serde_json::Value;

use crate::client::Client;
use crate::harness::Served;

const PATHS: [&str; 10] = [
    "/mcp",
    "/sse",
    "/messages?sessionId=x",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/containers/app/archive",
    "/v1/containers/app/files/a",
    "/",
    "/nothing/here",
];

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "OPTIONS"];

async fn statuses(headers: &[(&str, &str)]) -> Vec<u16> {
    let served = Served::start().await;
    let mut statuses = Vec::new();
    for path in PATHS {
        for method in METHODS {
            let mut client = Client::connect(served.port).await;
            client
                .request(&format!("{method} {path}"), headers, "")
                .await;
            let head = client.head().await;
            statuses.push(head.status);
        }
    }
    served.stop().await;
    statuses
}

#[tokio::test]
async fn a_foreign_host_is_refused_on_every_path_but_those_of_health() {
    let statuses = statuses(&[("Host", "evil.example")]).await;
    for (path, statuses) in PATHS.iter().zip(statuses.chunks(METHODS.len())) {
        let is_health = ["/healthz", "/readyz"].contains(path);
        let is_as_it_should = |status: &u16| (*status == 403) != is_health;
        assert!(statuses.iter().all(is_as_it_should), "{path}: {statuses:?}");
    }
}

#[tokio::test]
async fn a_server_that_takes_any_host_still_refuses_foreign_origins() {
    let guard = Guard::new(["box.example"]).unwrap().with_any_host();
    let served = Served::guarded(guard).await;
    let mut statuses = Vec::new();
    for (host, origin) in [
        ("192.0.2.7:8000", None),
        ("cells.internal", Some("http://localhost:6274")),
        ("cells.internal", Some("http://evil.example")),
        ("evil.example", Some("http://evil.example")),
    ] {
        let mut client = Client::connect(served.port).await;
        let origin = origin.map(|origin| ("Origin", origin));
        let headers: Vec<_> = origin.into_iter().chain([("Host", host)]).collect();
        client.request("GET /nothing", &headers, "").await;
        statuses.push(client.head().await.status);
    }
    assert_eq!(statuses, [404, 404, 403, 403]);
    served.stop().await;
}

#[tokio::test]
async fn a_foreign_origin_is_refused_on_every_path() {
    let statuses = statuses(&[("Origin", "http://evil.example")]).await;
    assert!(statuses.iter().all(|status| *status == 403), "{statuses:?}");
}

#[tokio::test]
async fn our_own_names_are_let_in_everywhere() {
    for headers in [
        &[][..],
        &[("Origin", "http://localhost:6274")],
        &[("Host", "box.example"), ("Origin", "https://box.example")],
    ] {
        let statuses = statuses(headers).await;
        assert!(!statuses.contains(&403), "{statuses:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_json_with_a_code_a_sentence_and_a_hint() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    client
        .request("GET /mcp", &[("Host", "evil.example")], "")
        .await;
    let answer = client.answer().await;
    assert_eq!(answer.head.headers["content-type"], "application/json");
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    insta::assert_snapshot!(body, @r#"{"code":"denied","hint":"reach it by a loopback name, or have the operator allow this one with --allowed-host","message":"the Host of this request is not a name of this server"}"#);
    served.stop().await;
}

#[tokio::test]
async fn a_request_without_a_host_is_a_bad_request() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    client.send(b"GET /mcp HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(client.head().await.status, 400);
    served.stop().await;
}
