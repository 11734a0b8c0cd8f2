//! A raw HTTP client, so that tests can send what no library would.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// The receive buffer of a client that does not read.
const RECEIVE_BYTES: u32 = 64 << 10;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    port: u16,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(port: u16) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // So that unread data stays with the server.
        socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = socket.connect(address).await.unwrap();
        Self {
            stream: BufReader::new(stream),
            port,
        }
    }

    /// Sends raw bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes).await
    }

    /// Sends a request. A `Host` is added unless `headers` has one.
    pub(crate) async fn request(&mut self, line: &str, headers: &[(&str, &str)], body: &str) {
        let host = ("Host", format!("127.0.0.1:{}", self.port));
        let has_host = headers.iter().any(|(name, _)| *name == "Host");
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let headers = headers.chain((!has_host).then_some(host));
        let headers: Vec<String> = headers
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let headers = headers.concat();
        let length = body.len();
        let text = format!("{line} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        self.send(text.as_bytes()).await.unwrap();
    }

    /// Sends a message to `/mcp`.
    pub(crate) async fn post(&mut self, message: &Value, headers: &[(&str, &str)]) {
        let mut all = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        all.extend_from_slice(headers);
        self.request("POST /mcp", &all, &message.to_string()).await;
    }

    /// Reads a line; empty at the end of the connection.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.stream.read_line(&mut line));
        read.await.expect("something comes").unwrap_or_default();
        line.trim_end().to_owned()
    }

    /// Reads the head of an answer.
    pub(crate) async fn head(&mut self) -> Head {
        let status = self.line().await;
        let status = status.split(' ').nth(1).unwrap_or("0").parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else {
                return Head { status, headers };
            };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
    }

    /// Reads a complete answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        let body = match head.headers.get("content-length") {
            Some(length) => self.exactly(length.parse().unwrap()).await,
            None if head.headers.contains_key("transfer-encoding") => self.chunks().await,
            None => String::new(),
        };
        Answer { head, body }
    }

    pub(crate) async fn exactly(&mut self, length: usize) -> String {
        let mut body = vec![0; length];
        let read = timeout(PATIENCE, self.stream.read_exact(&mut body));
        read.await.expect("something comes").unwrap();
        String::from_utf8(body).unwrap()
    }

    async fn chunks(&mut self) -> String {
        let mut body = String::new();
        loop {
            let chunk = self.chunk().await;
            if chunk.is_empty() {
                return body;
            }
            body.push_str(&chunk);
        }
    }

    /// Reads one chunk of a streamed answer; empty at its end.
    pub(crate) async fn chunk(&mut self) -> String {
        let length = usize::from_str_radix(&self.line().await, 16).unwrap_or(0);
        let chunk = self.exactly(length).await;
        self.line().await;
        chunk
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A reset is as good as a close.
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest))
            .await
            .expect("it closes");
    }

    /// Opens a Streamable HTTP session; returns its id.
    pub(crate) async fn initialize(&mut self) -> Result<String, Answer> {
        self.post(&initialize(), &[]).await;
        let answer = self.answer().await;
        match answer.head.headers.get("mcp-session-id") {
            Some(id) if answer.head.status == 200 => Ok(id.clone()),
            _ => Err(answer),
        }
    }

    /// Turns this connection into the stream for a session's messages.
    pub(crate) async fn listen(&mut self, session: &str) {
        assert!(self.try_to_listen(session).await);
    }

    /// The same; false if the session has ended.
    pub(crate) async fn try_to_listen(&mut self, session: &str) -> bool {
        let headers = [("Mcp-Session-Id", session), ("Accept", "text/event-stream")];
        self.request("GET /mcp", &headers, "").await;
        self.head().await.status == 200
    }
}

impl Answer {
    /// The message, whether it is a plain body or an event.
    pub(crate) fn message(&self) -> Value {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        let data = data.map(str::trim).rfind(|data| !data.is_empty());
        serde_json::from_str(data.unwrap_or(&self.body)).unwrap()
    }
}

/// The first message of the protocols before 2026.
pub(crate) fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    }})
}

pub(crate) fn call(id: u64, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {} });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// A call of protocol version 2026, and its headers.
pub(crate) fn modern_call(id: u64, tool: &str) -> (Value, [(&str, &str); 3]) {
    let mut message = call(id, tool);
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", tool),
    ];
    (message, headers)
}
