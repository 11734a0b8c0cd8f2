//! HTTP/1.1 by hand: one connection, requests one after the other, bodies of any length.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::deadline;

/// A connection that was idle for longer is not used again: the server may have closed it.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A connection.
pub(crate) struct Http {
    authority: String,
    token: Option<String>,
    stream: BufReader<TcpStream>,
    /// The status of the last response.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    used: Instant,
}

/// What is left of the response's body.
enum Body {
    Length(u64),
    /// Chunked; what is left of this chunk.
    Chunk(u64),
    Ended,
}

impl Http {
    /// Connects to `http://HOST:PORT`.
    pub(crate) fn connect(url: &str) -> Self {
        let authority = url.trim_start_matches("http://").to_owned();
        let stream = TcpStream::connect(&authority).expect("it listens");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(deadline())).expect("a socket");
        Self {
            authority,
            token: None,
            stream: BufReader::new(stream),
            status: 0,
            headers: Vec::new(),
            body: Body::Ended,
            used: Instant::now(),
        }
    }

    /// Sends a bearer token with each request.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Posts JSON as MCP does and reads the head of the response.
    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, String)], body: &str) {
        let mut all = vec![
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        all.extend_from_slice(headers);
        self.send("POST", path, &all, body.len() as u64);
        self.write(body.as_bytes());
        self.read_head();
    }

    /// A request without a body.
    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, String)]) {
        self.send("GET", path, headers, 0);
        self.read_head();
    }

    /// Writes the head of a request; the body of this length is written afterwards. A `Host` among
    /// the headers replaces the default one.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        length: u64,
    ) {
        if self.used.elapsed() > IDLE_MAX {
            let token = self.token.take();
            *self = Self::connect(&self.authority);
            self.token = token;
        }
        self.used = Instant::now();
        let mut lines = vec![
            format!("{method} {path} HTTP/1.1"),
            format!("Content-Length: {length}"),
        ];
        let is_host = |(name, _): &(&str, String)| name.eq_ignore_ascii_case("host");
        if !headers.iter().any(is_host) {
            lines.push(format!("Host: {}", self.authority));
        }
        let token = self.token.as_ref();
        lines.extend(token.map(|token| format!("Authorization: Bearer {token}")));
        lines.extend(
            headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}")),
        );
        let head = format!("{}\r\n\r\n", lines.join("\r\n"));
        self.write(head.as_bytes());
    }

    pub(crate) fn write(&mut self, data: &[u8]) {
        self.stream.get_mut().write_all(data).expect("it reads");
    }

    /// Like `write`, but returns an error if the connection was cut off.
    pub(crate) fn try_write(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(data)
    }

    /// Shrinks the receive buffer, so that unread data stays with the server.
    pub(crate) fn take_little(&self) {
        let stream = self.stream.get_ref();
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, 64 << 10).expect("a socket");
    }

    /// Peeks at up to a few KiB of unread data.
    pub(crate) fn peek(&self) -> String {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).expect("a socket");
        let mut buffer = [0; 8 << 10];
        let read = stream.peek(&mut buffer).unwrap_or(0);
        stream.set_nonblocking(false).expect("a socket");
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    pub(crate) fn read_head(&mut self) {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|word| word.parse().ok());
        self.status = status.expect("a status line");
        self.headers.clear();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            let pair = (name.to_ascii_lowercase(), value.trim().to_owned());
            self.headers.push(pair);
        }
        let length = self.header("content-length").map(str::parse);
        self.body = match length {
            Some(length) => Body::Length(length.expect("a number")),
            None if self.header("transfer-encoding") == Some("chunked") => Body::Chunk(0),
            None => Body::Length(0),
        };
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Status, headers and body of the answer to come, as text; without the time.
    pub(crate) fn read_answer(&mut self, is_head: bool) -> String {
        self.read_head();
        let mut lines = vec![self.status.to_string()];
        let headers = self.headers.iter().filter(|(name, _)| name != "date");
        lines.extend(headers.map(|(name, value)| format!("{name}: {value}")));
        if !is_head {
            lines.push(String::from_utf8_lossy(&self.read_whole()).into_owned());
        }
        lines.join("\n")
    }

    /// The rest of the body.
    pub(crate) fn read_whole(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            match self.read_some(&mut buffer) {
                0 => return whole,
                read => whole.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// Fills the buffer; returns how many bytes there were.
    pub(crate) fn read_full(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_some(&mut buffer[filled..]) {
                0 => break,
                read => filled += read,
            }
        }
        filled
    }

    /// A part of the body; 0 at its end.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> usize {
        let left = match self.body {
            Body::Ended | Body::Length(0) => 0,
            Body::Chunk(0) => self.next_chunk(),
            Body::Length(left) | Body::Chunk(left) => left,
        };
        if left == 0 {
            self.body = Body::Ended;
            return 0;
        }
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.stream.read(&mut buffer[..most]).expect("it answers");
        assert_ne!(read, 0, "the response was cut off");
        let left = left - read as u64;
        if matches!(self.body, Body::Length(_)) {
            self.body = Body::Length(left);
        } else {
            self.body = Body::Chunk(left);
            if left == 0 {
                self.line();
            }
        }
        read
    }

    fn next_chunk(&mut self) -> u64 {
        let line = self.line();
        let length = u64::from_str_radix(line.trim(), 16).expect("a chunk's length");
        if length == 0 {
            self.line();
        }
        length
    }

    /// The next JSON-RPC message: the body itself, or the next event of a stream.
    pub(crate) fn next_message(&mut self) -> Value {
        let kind = self.header("content-type").unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let body = self.read_whole();
            let text = String::from_utf8_lossy(&body).into_owned();
            return serde_json::from_str(&text)
                .unwrap_or_else(|_| panic!("{}: {text}", self.status));
        }
        loop {
            let event = self.event();
            if let Ok(message) = serde_json::from_str(&event)
                && !event.is_empty()
            {
                return message;
            }
        }
    }

    /// The data of the next event.
    pub(crate) fn event(&mut self) -> String {
        let mut data = String::new();
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            assert_eq!(self.read_some(&mut byte), 1, "the stream ended");
            if byte != *b"\n" {
                line.push(byte[0]);
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut line)).expect("text");
            if text.trim().is_empty() {
                return data;
            }
            if let Some(part) = text.strip_prefix("data:") {
                data.push_str(part.trim());
            }
        }
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).expect("it answers");
        assert_ne!(read, 0, "it hung up");
        line.trim_end().to_owned()
    }
}
