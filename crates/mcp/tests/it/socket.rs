//! The unix socket.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use hotcell_mcp::transport::{NoRawStreams, SOCKET_CONNECTIONS_MAX, Socket};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::world::PATIENCE;

/// Answers each call with the length of its argument `text`.
#[derive(Clone)]
struct TextLength;

impl ServerHandler for TextLength {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = arguments.get("text").and_then(Value::as_str);
        let length = text.unwrap_or_default().len().to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(length)]).into())
    }
}

fn call(id: u64, text: &str) -> Value {
    let params = json!({ "name": "length", "arguments": { "text": text } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path)
        .unwrap()
        .permissions()
        .mode()
        & 0o7777
}

async fn say(stream: &mut BufReader<UnixStream>, message: &Value) {
    let line = format!("{message}\n");
    stream.get_mut().write_all(line.as_bytes()).await.unwrap();
}

async fn hear(stream: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    let read = timeout(PATIENCE, stream.read_line(&mut line));
    read.await.expect("something comes").unwrap();
    serde_json::from_str(&line).unwrap()
}

async fn greet(path: &Path) -> BufReader<UnixStream> {
    greet_on(UnixStream::connect(path).await.unwrap()).await
}

async fn greet_on(stream: UnixStream) -> BufReader<UnixStream> {
    let mut stream = BufReader::new(stream);
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    }});
    say(&mut stream, &initialize).await;
    assert!(hear(&mut stream).await["result"]["serverInfo"].is_object());
    say(
        &mut stream,
        &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    )
    .await;
    stream
}

#[tokio::test]
async fn only_its_owner_can_open_it_and_it_goes_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let socket = Socket::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    let stop = CancellationToken::new();
    let serving = tokio::spawn(socket.serve(
        TextLength,
        NoRawStreams,
        |_| hotcell_domain::Caller::local(),
        stop.clone(),
    ));
    let mut stream = greet(&path).await;
    say(&mut stream, &call(1, "")).await;
    assert_eq!(hear(&mut stream).await["id"], 1);
    stop.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn its_path_may_be_longer_than_an_address() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("long".repeat(50));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("s");
    // A socket that an earlier server left is replaced.
    std::mem::forget(Socket::bind(&path).unwrap());
    let socket = Socket::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    let stop = CancellationToken::new();
    let serving = tokio::spawn(socket.serve(
        TextLength,
        NoRawStreams,
        |_| hotcell_domain::Caller::local(),
        stop.clone(),
    ));
    greet_on(Socket::connect(&path).await.unwrap()).await;
    stop.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_anything_else_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let first = Socket::bind(&path).unwrap();
    // Dropping the first one keeps the socket of the next server.
    let second = Socket::bind(&path).unwrap();
    drop(first);
    assert!(
        std::fs::symlink_metadata(&path)
            .unwrap()
            .file_type()
            .is_socket()
    );
    drop(second);
    std::fs::write(&path, "precious").unwrap();
    assert!(Socket::bind(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn a_client_too_many_is_turned_away_and_the_others_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let socket = Socket::bind(&path).unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(socket.serve(
        TextLength,
        NoRawStreams,
        |_| hotcell_domain::Caller::local(),
        stop.clone(),
    ));
    let mut clients = Vec::new();
    for _ in 0..SOCKET_CONNECTIONS_MAX {
        clients.push(greet(&path).await);
    }
    let mut refused = UnixStream::connect(&path).await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, refused.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert!(rest.is_empty());
    let client = clients.last_mut().unwrap();
    say(client, &call(1, "")).await;
    assert_eq!(hear(client).await["id"], 1);
    stop.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_long_is_answered_and_the_next_one_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let socket = Socket::bind(&path).unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(socket.serve(
        TextLength,
        NoRawStreams,
        |_| hotcell_domain::Caller::local(),
        stop.clone(),
    ));
    let mut client = greet(&path).await;
    let mut long = vec![b'x'; (16 << 20) + 1];
    long.push(b'\n');
    client.get_mut().write_all(&long).await.unwrap();
    assert_eq!(hear(&mut client).await["error"]["code"], -32600);
    let text = "x".repeat((16 << 20) - call(2, "").to_string().len() - 100);
    say(&mut client, &call(2, &text)).await;
    assert_eq!(
        hear(&mut client).await["result"]["content"][0]["text"],
        text.len().to_string()
    );
    stop.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap();
}
