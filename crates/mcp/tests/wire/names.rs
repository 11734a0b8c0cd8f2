//! A request that came by a name which is not ours is refused, on every path.

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

async fn statuses(headers: &[(&str, &str)]) -> Vec<u16> {
    let served = Served::start().await;
    let mut statuses = Vec::new();
    for path in PATHS {
        for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS"] {
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
async fn a_foreign_host_is_refused_on_every_path() {
    let statuses = statuses(&[("Host", "evil.example")]).await;
    assert!(statuses.iter().all(|status| *status == 403), "{statuses:?}");
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
    insta::assert_snapshot!(body, @r#"{"code":"denied","hint":"reach it by a loopback name, or have the operator allow this one","message":"the Host of this request is not a name of this server"}"#);
    served.stop().await;
}

#[tokio::test]
async fn a_request_without_a_host_is_a_bad_request() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    client.send(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(client.head().await.status, 400);
    served.stop().await;
}
