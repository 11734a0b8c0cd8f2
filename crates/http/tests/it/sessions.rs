//! Sessions and streams are limited, and end with their clients.

use std::time::Duration;

use hotcell_mcp::transport::REQUESTS_PER_CONNECTION_MAX;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::client::{Answer, Client, call, modern_call};
use crate::harness::{PATIENCE, Served};

/// Waits until the runtime has at most this many tasks.
async fn tasks_at_most(count: usize) {
    let fewer = async {
        while Handle::current().metrics().num_alive_tasks() > count {
            tokio::task::yield_now().await;
        }
    };
    let left = || Handle::current().metrics().num_alive_tasks();
    timeout(PATIENCE, fewer)
        .await
        .unwrap_or_else(|_| panic!("{} tasks are left", left()));
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn ping(port: u16, session: &str) -> Answer {
    let mut client = Client::connect(port).await;
    let message = serde_json::json!({ "jsonrpc": "2.0", "id": 5, "method": "ping" });
    client.post(&message, &[("Mcp-Session-Id", session)]).await;
    client.answer().await
}

#[tokio::test]
async fn for_one_session_too_many_the_one_idle_for_longest_is_closed() {
    let served = Served::with(|limits| limits.sessions_max = 4).await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(served.port).await;
        sessions.push(client.initialize().await.unwrap());
    }
    assert_eq!(served.http.sessions(), 4);
    assert_eq!(ping(served.port, &sessions[0]).await.head.status, 404);
    for session in &sessions[1..] {
        assert_eq!(ping(served.port, session).await.head.status, 200);
    }
    served.stop().await;
}

#[tokio::test]
async fn a_session_with_an_open_stream_is_never_closed_for_another() {
    let served = Served::with(|limits| limits.sessions_max = 2).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(served.port).await;
        let session = client.initialize().await.unwrap();
        client.listen(&session).await;
        streams.push(client);
    }
    let mut client = Client::connect(served.port).await;
    let refused = client.initialize().await.unwrap_err();
    assert_eq!(refused.head.status, 503, "{refused:?}");
    assert_eq!(refused.head.headers["retry-after"], "1");
    assert!(refused.body.contains("unavailable"), "{refused:?}");
    drop(streams.pop());
    while client.initialize().await.is_err() {}
    served.stop().await;
}

#[tokio::test]
async fn thousands_of_sessions_are_as_many_as_there_may_be() {
    let before = tasks();
    let served = Served::with(|limits| limits.sessions_max = 32).await;
    let mut client = Client::connect(served.port).await;
    for _ in 0..3000 {
        client.initialize().await.unwrap();
        assert!(served.http.sessions() <= 32);
    }
    // A session has three tasks, the listener one, the reaper one, this connection one.
    tasks_at_most(before + 3 * 32 + 3).await;
    served.stop().await;
    tasks_at_most(before).await;
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    let session_idle_timeout = Duration::from_millis(100);
    let before = tasks();
    let served = Served::with(|limits| limits.session_idle_timeout = session_idle_timeout).await;
    let mut client = Client::connect(served.port).await;
    let session = client.initialize().await.unwrap();
    let gone = async {
        while served.http.sessions() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    assert_eq!(ping(served.port, &session).await.head.status, 404);
    served.stop().await;
    tasks_at_most(before).await;
}

#[tokio::test]
async fn a_session_with_an_open_stream_outlives_its_idle_time() {
    let session_idle_timeout = Duration::from_millis(50);
    let served = Served::with(|limits| limits.session_idle_timeout = session_idle_timeout).await;
    // On a busy machine it may expire before it has a stream.
    let (_stream, session) = loop {
        let mut stream = Client::connect(served.port).await;
        let session = stream.initialize().await.unwrap();
        if stream.try_to_listen(&session).await {
            break (stream, session);
        }
    };
    let mut other = Client::connect(served.port).await;
    let idle = other.initialize().await.unwrap();
    // An unused session shows when the timeout is over.
    while ping_is_there(&served, &idle).await {
        tokio::time::sleep(session_idle_timeout * 4).await;
    }
    assert_eq!(ping(served.port, &session).await.head.status, 200);
    served.stop().await;
}

async fn ping_is_there(served: &Served, session: &str) -> bool {
    ping(served.port, session).await.head.status == 200
}

#[tokio::test]
async fn closing_the_connection_cancels_what_2026_asked_for_and_leaves_no_task() {
    let served = Served::start().await;
    let before = tasks();
    let mut calls = served.fixture.calls().follow();
    for count in 1..=20 {
        let mut client = Client::connect(served.port).await;
        let (message, headers) = modern_call(count, "test_wait");
        client.post(&message, &headers).await;
        calls.wait_for(|(running, _)| *running == 1).await.unwrap();
        drop(client);
        let cancelled = usize::try_from(count).unwrap();
        let ended = calls.wait_for(|(running, ended)| *running == 0 && *ended == cancelled);
        timeout(PATIENCE, ended).await.unwrap().unwrap();
    }
    tasks_at_most(before).await;
    served.stop().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_leaves_no_task_beside_its_session() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    let session = client.initialize().await.unwrap();
    let before = tasks();
    for _ in 0..50 {
        let mut stream = Client::connect(served.port).await;
        stream.listen(&session).await;
    }
    tasks_at_most(before).await;
    assert_eq!(served.http.sessions(), 1);
    served.stop().await;
}

#[tokio::test]
async fn requests_that_are_left_behind_are_bounded() {
    let served = Served::start().await;
    let mut calls = served.fixture.calls().follow();
    let mut client = Client::connect(served.port).await;
    let session = client.initialize().await.unwrap();
    let initialized =
        serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client
        .post(&initialized, &[("Mcp-Session-Id", &session)])
        .await;
    assert_eq!(client.answer().await.head.status, 202);
    for id in 0..REQUESTS_PER_CONNECTION_MAX {
        let mut client = Client::connect(served.port).await;
        let message = call(id as u64 + 1, "test_wait");
        client.post(&message, &[("Mcp-Session-Id", &session)]).await;
        assert_eq!(client.head().await.status, 200);
    }
    let all = calls.wait_for(|(running, _)| *running == REQUESTS_PER_CONNECTION_MAX);
    timeout(PATIENCE, all).await.unwrap().unwrap();
    client
        .post(
            &call(9999, "test_simple_text"),
            &[("Mcp-Session-Id", &session)],
        )
        .await;
    assert_eq!(client.answer().await.message()["error"]["code"], -32029);

    let cancel = serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    client.post(&cancel, &[("Mcp-Session-Id", &session)]).await;
    assert_eq!(client.answer().await.head.status, 202);
    timeout(PATIENCE, calls.wait_for(|(_, cancelled)| *cancelled == 1))
        .await
        .unwrap()
        .unwrap();
    client
        .post(
            &call(10_000, "test_simple_text"),
            &[("Mcp-Session-Id", &session)],
        )
        .await;
    assert!(client.answer().await.message()["result"].is_object());
    served.stop().await;
}

#[tokio::test]
async fn stopping_ends_every_stream_and_leaves_nothing() {
    let before = tasks();
    let served = Served::start().await;
    let mut stream = Client::connect(served.port).await;
    let session = stream.initialize().await.unwrap();
    stream.listen(&session).await;
    let mut sse = Client::connect(served.port).await;
    sse.request("GET /sse", &[], "").await;
    sse.head().await;
    served.stop().await;
    stream.closed().await;
    sse.closed().await;
    tasks_at_most(before).await;
}

#[tokio::test]
async fn a_client_that_ends_its_session_is_answered_204_and_the_session_is_gone() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    let session = client.initialize().await.unwrap();
    assert_eq!(ping(served.port, &session).await.head.status, 200);
    let headers = [("Mcp-Session-Id", session.as_str())];
    client.request("DELETE /mcp", &headers, "").await;
    assert_eq!(client.answer().await.head.status, 204);
    assert_eq!(ping(served.port, &session).await.head.status, 404);
    served.stop().await;
}
