//! A small MCP client over Streamable HTTP: one connection, one session, one request at a time, and
//! as little overhead as possible.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// The version that most clients use.
const PROTOCOL: &str = "2025-06-18";

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

pub(super) struct Client {
    stream: BufReader<TcpStream>,
    session: Option<String>,
    /// The `Authorization` header; empty without authentication.
    authorization: String,
    next_id: u64,
}

struct Response {
    session: Option<String>,
    body: Vec<u8>,
}

impl Client {
    /// Connects and initializes a session, with an access token if there is one.
    pub(super) fn connect(address: SocketAddr, token: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut this = Self {
            stream: BufReader::with_capacity(256 << 10, stream),
            session: None,
            authorization: token.map_or_else(String::new, |token| {
                format!("Authorization: Bearer {token}\r\n")
            }),
            next_id: 1,
        };
        let parameters = json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        });
        this.request("initialize", &parameters)?;
        this.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(this)
    }

    /// Calls a tool; returns its structured content.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let parameters = json!({"name": tool, "arguments": arguments});
        let mut result = self.request("tools/call", &parameters)?;
        let content = result["structuredContent"].take();
        ensure!(result["isError"] != json!(true), "{tool}: {content}");
        Ok(content)
    }

    /// Sends a request; returns its result.
    pub(super) fn request(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters});
        let response = self.post(&message)?;
        self.session = response.session.or(self.session.take());
        let mut answer = answer(&response.body, id).with_context(|| method.to_owned())?;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        Ok(answer["result"].take())
    }

    fn post(&mut self, message: &Value) -> Result<Response> {
        let body = serde_json::to_vec(message)?;
        let session = self.session.as_ref().map_or_else(String::new, |session| {
            format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {PROTOCOL}\r\n")
        });
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{}{session}Content-Length: {}\r\n\r\n",
            self.authorization,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        self.stream.get_mut().write_all(&request)?;
        self.read_response()
    }

    /// Replaces a file of a container; its bytes are the body.
    pub(super) fn put(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.ask("PUT", path, bytes).map(drop)
    }

    /// Reads a file of a container.
    pub(super) fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        Ok(self.ask("GET", path, &[])?.body)
    }

    fn ask(&mut self, method: &str, path: &str, bytes: &[u8]) -> Result<Response> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n",
            self.authorization,
            bytes.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(bytes)?;
        self.read_response()
    }

    fn read_response(&mut self) -> Result<Response> {
        let status = self.read_line()?;
        let code = status.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut session, mut length, mut is_chunked) = (None, 0, false);
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").context("a header")?;
            match name.to_ascii_lowercase().as_str() {
                "mcp-session-id" => session = Some(value.to_owned()),
                "content-length" => length = value.parse()?,
                "transfer-encoding" => is_chunked = value == "chunked",
                _ => {}
            }
        }
        let mut body = Vec::new();
        if is_chunked {
            while self.read_chunk(&mut body)? {}
        } else {
            body.resize(length, 0);
            self.stream.read_exact(&mut body)?;
        }
        if !["200", "201", "202", "204"].contains(&code.as_str()) {
            bail!("{status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(Response { session, body })
    }

    /// Adds a chunk to the body; false after the last one.
    fn read_chunk(&mut self, body: &mut Vec<u8>) -> Result<bool> {
        let size = usize::from_str_radix(&self.read_line()?, 16)?;
        let start = body.len();
        body.resize(start + size, 0);
        self.stream.read_exact(&mut body[start..])?;
        self.read_line()?;
        Ok(size > 0)
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line)?;
        ensure!(count > 0, "the server closed the connection");
        Ok(line.trim_end().to_owned())
    }
}

/// The answer to request `id`, in a body that is JSON or an event stream.
fn answer(body: &[u8], id: u64) -> Result<Value> {
    if body.first() == Some(&b'{') {
        return Ok(serde_json::from_slice(body)?);
    }
    let data = body
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(b"data:"));
    for data in data.filter(|data| !data.trim_ascii().is_empty()) {
        let message: Value = serde_json::from_slice(data)?;
        if message["id"] == json!(id) {
            return Ok(message);
        }
    }
    bail!("no answer in the response")
}
