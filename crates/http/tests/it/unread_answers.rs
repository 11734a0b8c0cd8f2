//! Unread answers: they share one memory budget across transports, and are freed with their client.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::ExecId;
use hotcell_http::{Anonymous, Guard, Http, HttpLimits, HttpSettings, MCP_PATH, serve_http};
use hotcell_mcp::transport::Socket;
use hotcell_mcp::{Options, Server};
use hotcell_testkit::world::{PATIENCE, World, sh};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, initialize, modern_call};

/// Output of the command. An answer contains it twice.
const OUTPUT_BYTES: usize = 3 << 20;

/// The most that a poll can ask for.
const POLL_BYTES_MAX: usize = 4 << 20;

/// Enough to build the largest answer while nobody holds one, but not two; more than socket buffers
/// hold.
const ANSWERS_BYTES_MAX: usize = 20 << 20;

struct Served {
    world: World,
    port: u16,
    exec: ExecId,
    directory: tempfile::TempDir,
    _stop: tokio_util::sync::DropGuard,
}

impl Served {
    async fn start() -> Self {
        let world = World::new().await;
        let container = world.spawn().await;
        let script = format!("head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x");
        let exec = world.start(&container, sh(&script)).await;
        world.finish(&exec).await;
        let options = Options {
            answers_bytes_max: ANSWERS_BYTES_MAX,
            answer_wait_max: Duration::from_secs(2),
            ..Options::default()
        };
        let server = Server::new(world.service.clone(), options);
        let limits = HttpLimits::default();
        let settings = HttpSettings {
            path: MCP_PATH.to_owned(),
            guard: Guard::default(),
            limits: limits.clone(),
            identify: Arc::new(Anonymous::default()),
        };
        let stop = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let http = Http::new(server.clone(), axum::Router::new(), &settings, &stop);
        tokio::spawn(serve_http(listener, http.router, limits, stop.clone()));
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&directory.path().join("s")).unwrap();
        tokio::spawn(socket.serve(
            server,
            hotcell_mcp::transport::NoRawStreams,
            |_| hotcell_domain::Caller::local(),
            stop.clone(),
        ));
        Self {
            world,
            port,
            exec,
            directory,
            _stop: stop.drop_guard(),
        }
    }

    fn poll(&self, bytes_max: usize) -> (Value, [(&'static str, &'static str); 3]) {
        let (mut message, headers) = modern_call(7, "exec_poll");
        message["params"]["arguments"] =
            json!({ "exec_id": self.exec.as_str(), "max_bytes": bytes_max });
        (message, headers)
    }

    /// Polls; returns whether it got the complete answer or was refused.
    async fn is_answered(&self) -> bool {
        let (message, headers) = self.poll(POLL_BYTES_MAX);
        let mut client = Client::connect(self.port).await;
        client.post(&message, &headers).await;
        let answer = client.answer().await.message();
        let result = &answer["result"];
        if result["isError"] == true {
            let said = &result["structuredContent"];
            assert_eq!(said["code"], "resource_exhausted", "{said}");
            assert!(
                said["hint"].as_str().unwrap().contains("max_bytes"),
                "{said}"
            );
            return false;
        }
        let messages = result["structuredContent"]["messages"].as_array().unwrap();
        let bytes: usize = messages
            .iter()
            .map(|one| one["data"].as_str().unwrap().len())
            .sum();
        assert_eq!(bytes, OUTPUT_BYTES, "{answer:?}");
        true
    }

    async fn until_answered(&self, is_answered: bool) {
        let waited = async { while self.is_answered().await != is_answered {} };
        let waited = tokio::time::timeout(PATIENCE, waited).await;
        waited.unwrap_or_else(|_| panic!("never: answered {is_answered}"));
    }

    /// While `unread` holds an unread answer, another large one is refused and a small one is not;
    /// without it, both are answered.
    async fn is_held_by<T>(&self, unread: T) {
        self.until_answered(false).await;
        let (message, headers) = self.poll(100);
        let mut client = Client::connect(self.port).await;
        client.post(&message, &headers).await;
        let answer = client.answer().await;
        assert_eq!(answer.message()["result"]["isError"], false, "{answer:?}");
        drop(unread);
        self.until_answered(true).await;
        // Nobody holds memory now, and it stays that way.
        for _ in 0..3 {
            assert!(self.is_answered().await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_http_takes_room_until_it_is_read_or_its_client_is_gone() {
    let served = Served::start().await;
    assert!(served.is_answered().await);
    let (message, headers) = served.poll(POLL_BYTES_MAX);
    let mut unread = Client::connect(served.port).await;
    unread.post(&message, &headers).await;
    let length = &unread.head().await.headers["content-length"];
    assert!(length.parse::<usize>().unwrap() > OUTPUT_BYTES, "{length}");
    served.is_held_by(unread).await;
}

/// Reads events until a large one begins, and leaves it unread.
async fn until_large(stream: &mut Client) {
    loop {
        let length = usize::from_str_radix(&stream.line().await, 16).unwrap();
        if length > OUTPUT_BYTES {
            return;
        }
        let event = stream.exactly(length + 2).await;
        assert!(!event.contains("resource_exhausted"), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_a_session_does_so_too_and_is_whole() {
    let served = Served::start().await;
    let mut client = Client::connect(served.port).await;
    let session = client.initialize().await.unwrap();
    let headers = [("Mcp-Session-Id", session.as_str())];
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.post(&note, &headers).await;
    client.answer().await;
    let (mut message, _) = served.poll(POLL_BYTES_MAX);
    message["params"].as_object_mut().unwrap().remove("_meta");
    for _ in 0..3 {
        client.post(&message, &headers).await;
        let answer = client.answer().await.message();
        let messages = &answer["result"]["structuredContent"]["messages"];
        let read = messages.as_array().unwrap().iter();
        let bytes: usize = read.map(|one| one["data"].as_str().unwrap().len()).sum();
        assert_eq!(bytes, OUTPUT_BYTES);
    }
    // A sent answer is not kept.
    assert!(served.is_answered().await);
    let mut unread = Client::connect(served.port).await;
    unread.post(&message, &headers).await;
    assert_eq!(unread.head().await.status, 200);
    until_large(&mut unread).await;
    served.is_held_by(unread).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_legacy_sse_does_so_too() {
    let served = Served::start().await;
    let mut stream = Client::connect(served.port).await;
    stream.request("GET /sse", &[], "").await;
    stream.head().await;
    let event = stream.chunk().await;
    let path = event.lines().nth(1).unwrap()["data: ".len()..].to_owned();
    let mut sender = Client::connect(served.port).await;
    let json = [("Content-Type", "application/json")];
    let (mut message, _) = served.poll(POLL_BYTES_MAX);
    message["params"].as_object_mut().unwrap().remove("_meta");
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for message in [initialize(), note, message] {
        let line = format!("POST {path}");
        sender.request(&line, &json, &message.to_string()).await;
        assert_eq!(sender.answer().await.head.status, 202);
    }
    until_large(&mut stream).await;
    served.is_held_by(stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_on_the_unix_socket_does_so_too() {
    let served = Served::start().await;
    let path = served.directory.path().join("s");
    let mut unread = Socket::connect(&path).await.unwrap();
    let (mut message, _) = served.poll(POLL_BYTES_MAX);
    message["params"].as_object_mut().unwrap().remove("_meta");
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for message in [initialize(), note, message] {
        let line = format!("{message}\n");
        unread.write_all(line.as_bytes()).await.unwrap();
    }
    // More than fits without it.
    unread.read_exact(&mut vec![0; 64 << 10]).await.unwrap();
    served.is_held_by(unread).await;
    drop(served.world);
}
