//! The HTTP+SSE transport of 2024.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, call, initialize};
use crate::harness::Served;

/// A session: its stream, and the URL for messages.
async fn open(port: u16) -> (Client, String) {
    let mut stream = Client::connect(port).await;
    stream
        .request("GET /sse", &[("Accept", "text/event-stream")], "")
        .await;
    let head = stream.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-type"], "text/event-stream");
    let event = stream.chunk().await;
    let endpoint = event
        .strip_prefix("event: endpoint\ndata: ")
        .unwrap()
        .trim_end()
        .to_owned();
    (stream, endpoint)
}

async fn post(port: u16, endpoint: &str, message: &Value) -> u16 {
    let mut client = Client::connect(port).await;
    let headers = [("Content-Type", "application/json")];
    client
        .request(&format!("POST {endpoint}"), &headers, &message.to_string())
        .await;
    client.answer().await.head.status
}

async fn event(stream: &mut Client) -> Value {
    let event = stream.chunk().await;
    let data = event
        .strip_prefix("event: message\ndata: ")
        .unwrap_or_else(|| panic!("{event}"));
    serde_json::from_str(data).unwrap()
}

#[tokio::test]
async fn a_client_of_2024_is_served() {
    let served = Served::start().await;
    let (mut stream, endpoint) = open(served.port).await;
    let mut first = initialize();
    first["params"]["protocolVersion"] = "2024-11-05".into();
    assert_eq!(post(served.port, &endpoint, &first).await, 202);
    let answer = event(&mut stream).await;
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(served.port, &endpoint, &initialized).await, 202);
    assert_eq!(
        post(served.port, &endpoint, &call(1, "test_simple_text")).await,
        202
    );
    let answer = event(&mut stream).await;
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, "This is a simple text response for testing.");
    served.stop().await;
}

#[tokio::test]
async fn a_session_is_its_stream() {
    let served = Served::with(|limits| limits.sse_sessions_max = 1).await;
    let (stream, endpoint) = open(served.port).await;
    let mut client = Client::connect(served.port).await;
    client.request("GET /sse", &[], "").await;
    let refused = client.answer().await;
    assert_eq!(refused.head.status, 503);
    assert_eq!(refused.head.headers["retry-after"], "1");
    drop(stream);
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    while post(served.port, &endpoint, &message).await == 202 {}
    assert_eq!(post(served.port, &endpoint, &message).await, 404);
    open(served.port).await;
    served.stop().await;
}

#[tokio::test]
async fn what_names_no_session_is_not_found() {
    let served = Served::start().await;
    for endpoint in [
        "/messages",
        "/messages?sessionId=",
        "/messages?sessionId=00",
        "/messages?x=y",
    ] {
        assert_eq!(
            post(served.port, endpoint, &json!({})).await,
            404,
            "{endpoint}"
        );
    }
    let (_stream, endpoint) = open(served.port).await;
    assert_eq!(post(served.port, &endpoint, &json!({})).await, 400);
    served.stop().await;
}

#[tokio::test]
async fn a_silent_stream_says_that_it_is_alive() {
    let keep_alive_interval = Duration::from_millis(20);
    let served = Served::with(|limits| limits.keep_alive_interval = keep_alive_interval).await;
    let (mut stream, _) = open(served.port).await;
    assert_eq!(stream.chunk().await, ": alive\n\n");
    served.stop().await;
}

#[tokio::test]
async fn sessions_cannot_be_guessed() {
    let served = Served::start().await;
    let (_first, one) = open(served.port).await;
    let (_second, other) = open(served.port).await;
    assert_ne!(one, other);
    let id = one.rsplit('=').next().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
    served.stop().await;
}
