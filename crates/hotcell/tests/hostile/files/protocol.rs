//! Malformed requests to an agent, from something that is not our server.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hotcell_agent_client::Agent;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::container::{assert_well, in_time};
use crate::support::{TestContainer, eventually};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long to wait for the agent's response to malformed input.
const LISTEN: Duration = Duration::from_millis(20);

/// Every call of the protocol.
const CALLS: [&str; 19] = [
    "Hello",
    "Exec",
    "Input",
    "Signal",
    "Resize",
    "Cancel",
    "ListExecs",
    "Forget",
    "Stat",
    "List",
    "Read",
    "Write",
    "Delete",
    "Move",
    "Copy",
    "Mkdir",
    "Batch",
    "Import",
    "Export",
];

async fn connect(container: &TestContainer) -> UnixStream {
    let directory = container
        .home
        .path()
        .join("containers")
        .join(container.id.as_str());
    let directory = File::open(directory).expect("the container's directory");
    // By a short path: a socket's may not be long.
    let path = format!("/proc/self/fd/{}/agent.sock", directory.as_raw_fd());
    UnixStream::connect(path).await.expect("the agent listens")
}

/// Sends bytes on a connection of their own and drops it a little later.
async fn send(container: &TestContainer, bytes: &[u8]) {
    let mut stream = connect(container).await;
    let (mut from, mut to) = stream.split();
    // The agent may hang up in the middle, and mostly does.
    let talk = async {
        let _ = to.write_all(bytes).await;
        let mut answer = [0; 4096];
        while from.read(&mut answer).await.is_ok_and(|read| read > 0) {}
    };
    let _ = tokio::time::timeout(LISTEN, talk).await;
}

/// A new connection is served and the old one still is.
async fn assert_served(container: &TestContainer) {
    eventually("a new connection is served", || async {
        let stream = container
            .engine
            .open(&container.id)
            .await
            .expect("the socket is there");
        Agent::connect(stream).await.is_ok()
    })
    .await;
    in_time(container.agent.stat(b"", false))
        .await
        .expect("the old connection is served");
    assert_well(container).await;
}

fn frame(length: usize, kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).expect("24 bits").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// Random bytes, determined by the seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

/// The headers of a call, as HPACK writes them without a table.
fn call(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04];
    block.push(u8::try_from(path.len()).expect("a short path"));
    block.extend(path.as_bytes());
    block.extend([0x0f, 0x10, 16]);
    block.extend(b"application/grpc");
    block.extend([0x00, 2]);
    block.extend(b"te");
    block.push(8);
    block.extend(b"trailers");
    block
}

#[tokio::test]
async fn noise_and_broken_frames_hurt_nobody() {
    let container = TestContainer::new().await;
    let settings = frame(0, 4, 0, 0, &[]);
    let begin = [PREFACE, &settings].concat();
    for seed in 0..60 {
        let noise = noise(seed, 1 + 50 * usize::try_from(seed).unwrap());
        send(&container, &noise).await;
        send(&container, &[&begin, &noise[..]].concat()).await;
    }
    for cut in 0..PREFACE.len() {
        send(&container, &PREFACE[..cut]).await;
    }
    let lies = [
        frame(0x00ff_ffff, 0, 0, 1, &[0; 4096]),
        frame(0x00ff_ffff, 1, 0, 1, &[0; 4096]),
        frame(5, 4, 0, 0, &[0; 5]),
        frame(4, 8, 0, 0, &[0xff; 4]),
        frame(4, 8, 0, 0, &[0; 4]),
        frame(10, 1, 4, 1, &[0xff; 10]),
        frame(1 << 15, 1, 4, 1, &vec![0x88; 1 << 15]),
        frame(4, 9, 4, 3, &[0; 4]),
        frame(4, 5, 4, 1, &[0, 0, 0, 2]),
        settings.repeat(20_000),
        frame(8, 6, 0, 0, &[0; 8]).repeat(20_000),
        frame(6, 4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]).repeat(20_000),
    ];
    for lie in lies {
        send(&container, &[&begin, &lie[..]].concat()).await;
    }
    assert_served(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn thousands_of_calls_at_once_are_bounded() {
    let container = TestContainer::new().await;
    let begin = [PREFACE, &frame(0, 4, 0, 0, &[])].concat();
    let headers = |stream: u32, path: &str| {
        let block = call(path);
        frame(block.len(), 1, 4, stream, &block)
    };
    let (mut open, mut reset, mut started) = (begin.clone(), begin.clone(), begin.clone());
    for n in 0..5000 {
        let stream = 2 * n + 1;
        open.extend(headers(stream, "/hotcell.agent.v1.Agent/Exec"));
        reset.extend(headers(stream, "/hotcell.agent.v1.Agent/Hello"));
        reset.extend(frame(4, 3, 0, stream, &[0, 0, 0, 8]));
        started.extend(headers(stream, "/hotcell.agent.v1.Agent/Write"));
        // A message of 4 MiB is promised on each of them, and never comes.
        started.extend(frame(5, 0, 0, stream, &[0, 0, 0x3f, 0xff, 0xff]));
    }
    for flood in [open, reset, started] {
        send(&container, &flood).await;
        assert_served(&container).await;
    }
    container.remove().await;
}

#[tokio::test]
async fn more_connections_than_there_may_be_are_closed_and_the_others_served() {
    let container = TestContainer::new().await;
    let closed = Arc::new(AtomicUsize::new(0));
    let mut idle = JoinSet::new();
    for _ in 0..100 {
        let (mut stream, closed) = (connect(&container).await, Arc::clone(&closed));
        idle.spawn(async move {
            let _ = stream.read_to_end(&mut Vec::new()).await;
            closed.fetch_add(1, Ordering::Relaxed);
        });
    }
    in_time(container.agent.stat(b"", false)).await.unwrap();
    eventually("all but a few of them are closed", || async {
        closed.load(Ordering::Relaxed) >= 90
    })
    .await;
    assert!(closed.load(Ordering::Relaxed) < 100, "not one is served");
    drop(idle);
    assert_served(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn calls_with_broken_messages_are_answered_with_a_no() {
    let container = TestContainer::new().await;
    let (client, connection) = h2::client::handshake(connect(&container).await)
        .await
        .unwrap();
    tokio::spawn(connection);
    for seed in 0..40 {
        for name in CALLS.iter().chain(&["Nothing", ""]) {
            let noise = noise(seed, usize::try_from(seed * 7).unwrap());
            let answer = in_time(answered(client.clone(), name, &noise)).await;
            // No message at all is an empty one, which some calls take.
            assert!(answer.is_some() || seed == 0, "{name}, seed {seed}");
        }
    }
    assert_served(&container).await;
    container.remove().await;
}

/// The status of a call with this message, if it is a refusal; broken calls may also be
/// reset.
async fn answered(client: h2::client::SendRequest<Bytes>, name: &str, body: &[u8]) -> Option<()> {
    let mut client = client.ready().await.expect("the connection lives");
    let request = Request::post(format!("http://agent/hotcell.agent.v1.Agent/{name}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let request = request.body(()).expect("a request");
    let (response, mut stream) = client
        .send_request(request, false)
        .expect("room for a call");
    let length = u32::try_from(body.len())
        .expect("a short body")
        .to_be_bytes();
    let message = [&[0], &length[..], body].concat();
    let _ = stream.send_data(message.into(), true);
    let Ok(response) = response.await else {
        return Some(());
    };
    let is_no =
        |headers: &http::HeaderMap| headers.get("grpc-status").is_some_and(|code| code != "0");
    if is_no(response.headers()) {
        return Some(());
    }
    let mut body = response.into_body();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await.ok().flatten();
    trailers
        .is_none_or(|trailers| is_no(&trailers))
        .then_some(())
}
