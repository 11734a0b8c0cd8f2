//! Clients that send too much, or too slowly.

use std::time::Duration;

use serde_json::json;

use crate::client::{Client, modern_call};
use crate::harness::Served;

const SOON: Duration = Duration::from_millis(200);

const JSON: [(&str, &str); 2] = [
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
];

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_however_it_comes() {
    let served = Served::with(|limits| limits.body_bytes_max = 1000).await;
    let mut client = Client::connect(served.port).await;
    client
        .request("POST /mcp", &JSON, &"x".repeat(100_000))
        .await;
    let answer = client.answer().await;
    assert_eq!(answer.head.status, 413, "{answer:?}");
    assert!(answer.body.contains("resource_exhausted"), "{answer:?}");

    let mut client = Client::connect(served.port).await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(head.as_bytes()).await.unwrap();
    for _ in 0..100 {
        client
            .send(format!("3e8\r\n{}\r\n", "x".repeat(1000)).as_bytes())
            .await
            .unwrap();
    }
    client.send(b"0\r\n\r\n").await.unwrap();
    assert_eq!(client.answer().await.head.status, 413);
    served.stop().await;
}

#[tokio::test]
async fn a_body_that_trickles_in_ends_with_408() {
    let served = Served::with(|limits| limits.body_timeout = SOON).await;
    let mut stream = Client::connect(served.port).await;
    stream.request("GET /sse", &[], "").await;
    stream.head().await;
    let event = stream.chunk().await;
    let messages = event.lines().nth(1).unwrap();
    for path in ["/mcp", &messages["data: ".len()..]] {
        let mut sender = Client::connect(served.port).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{{"
        );
        sender.send(head.as_bytes()).await.unwrap();
        let answer = sender.answer().await;
        assert_eq!(answer.head.status, 408, "{path}: {answer:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_head_that_trickles_in_ends_the_connection() {
    let served = Served::with(|limits| limits.head_timeout = SOON).await;
    let mut client = Client::connect(served.port).await;
    client
        .send(b"GET /healthz HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    client.closed().await;
    served.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(200_000)
    );
    // The server may close before it has read everything.
    let _ = client.send(head.as_bytes()).await;
    client.closed().await;
    let mut client = Client::connect(served.port).await;
    let many = "X: y\r\n".repeat(200);
    client
        .send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes())
        .await
        .unwrap();
    assert_eq!(client.head().await.status, 431);
    served.stop().await;
}

#[tokio::test]
async fn a_connection_too_many_is_closed_at_once() {
    let served = Served::with(|limits| limits.connections_max = 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(served.port).await;
        client.request("GET /nothing", &[], "").await;
        assert_eq!(client.answer().await.head.status, 404);
        held.push(client);
    }
    Client::connect(served.port).await.closed().await;
    drop(held.pop());
    // The slot is free once the server has noticed.
    loop {
        let mut client = Client::connect(served.port).await;
        if client
            .send(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .is_ok()
            && client.head().await.status == 404
        {
            break;
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn a_request_too_many_is_told_to_come_back() {
    let served = Served::with(|limits| limits.requests_max = 1).await;
    let mut running = served.fixture.calls().follow();
    let mut waiting = Client::connect(served.port).await;
    let (message, headers) = modern_call(1, "test_wait");
    waiting.post(&message, &headers).await;
    running
        .wait_for(|(running, _)| *running == 1)
        .await
        .unwrap();
    let mut client = Client::connect(served.port).await;
    client.request("GET /nothing", &[], "").await;
    let answer = client.answer().await;
    assert_eq!(answer.head.status, 503);
    assert_eq!(answer.head.headers["retry-after"], "1");
    served.stop().await;
}

#[tokio::test]
async fn a_body_that_is_no_message_is_answered_as_json_rpc_says() {
    let served = Served::start().await;
    for (body, code) in [
        ("{", -32700),
        ("", -32700),
        ("[]", -32600),
        ("{\"a\":1}", -32600),
    ] {
        let mut client = Client::connect(served.port).await;
        client.request("POST /mcp", &JSON, body).await;
        let answer = client.answer().await;
        assert_eq!(answer.head.status, 400, "{answer:?}");
        assert_eq!(answer.message()["error"]["code"], code, "{answer:?}");
        assert_eq!(answer.message()["id"], json!(null));
    }
    served.stop().await;
}

/// The head of a request whose body follows in chunks.
const CHUNKED: &str = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
     Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A message of at least this many bytes.
fn long_ping(bytes: usize) -> String {
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "_meta": { "pad": "x".repeat(bytes) } } });
    ping.to_string()
}

#[tokio::test]
async fn small_requests_pass_while_large_ones_hold_all_memory_there_is_for_them() {
    let served = Served::with(|limits| {
        limits.bodies_bytes_max = 1 << 20;
        limits.bodies_wait_timeout = SOON;
    })
    .await;
    let mut large = Client::connect(served.port).await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: 1114113\r\n\r\n";
    large.send(head.as_bytes()).await.unwrap();
    large
        .send(&vec![b'x'; (1 << 20) + (64 << 10)])
        .await
        .unwrap();
    // While the first one holds all the memory, another is told to come back.
    loop {
        let mut second = Client::connect(served.port).await;
        second
            .request("POST /mcp", &JSON, &long_ping(100_000))
            .await;
        let answer = second.answer().await;
        if answer.head.status == 503 {
            assert!(answer.body.contains("too many large"), "{answer:?}");
            break;
        }
    }
    let mut small = Client::connect(served.port).await;
    small.initialize().await.unwrap();
    drop(large);
    served.stop().await;
}

#[tokio::test]
async fn uploads_that_say_nothing_of_their_length_and_stop_keep_nothing_from_others() {
    let hours = Duration::from_hours(1);
    let served = Served::with(|limits| {
        (limits.body_timeout, limits.body_grace) = (hours, hours);
        limits.bodies_wait_timeout = hours;
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..16 {
        let mut client = Client::connect(served.port).await;
        client.send(CHUNKED.as_bytes()).await.unwrap();
        client.send(b"1\r\n{\r\n").await.unwrap();
        idle.push(client);
    }
    for _ in 0..4 {
        let mut client = Client::connect(served.port).await;
        client
            .request("POST /mcp", &JSON, &long_ping(1 << 20))
            .await;
        // It was read, and refused because it has no session.
        assert_eq!(client.answer().await.head.status, 400);
    }
    drop(idle);
    served.stop().await;
}

#[tokio::test]
async fn a_body_below_the_lowest_rate_ends_with_408_long_before_its_deadline() {
    let served = Served::with(|limits| {
        limits.body_timeout = Duration::from_hours(1);
        limits.body_grace = SOON;
    })
    .await;
    let mut client = Client::connect(served.port).await;
    client.send(CHUNKED.as_bytes()).await.unwrap();
    client.send(b"1\r\n{\r\n").await.unwrap();
    let answer = client.answer().await;
    assert_eq!(answer.head.status, 408, "{answer:?}");
    assert!(answer.body.contains("too slowly"), "{answer:?}");
    served.stop().await;
}

#[tokio::test]
async fn sessions_and_streams_that_stay_open_take_no_places_of_requests() {
    let served = Served::with(|limits| limits.requests_max = 2).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(served.port).await;
        let session = client.initialize().await.unwrap();
        client.listen(&session).await;
        open.push(client);
        let mut stream = Client::connect(served.port).await;
        stream.request("GET /sse", &[], "").await;
        assert_eq!(stream.head().await.status, 200);
        open.push(stream);
    }
    served.stop().await;
}
