//! A registry with scripted answers.

#![expect(missing_docs, reason = "what a test calls reads as what it does")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::image::{Made, digest};

/// How to answer one request.
#[derive(Clone)]
pub enum Answer {
    /// A raw HTTP response.
    Raw(Vec<u8>),
    /// Status 200 with a body, or the requested range of it.
    Body(Vec<u8>),
    /// The first bytes of a body, then the connection closes.
    Cut(Vec<u8>, usize),
    /// The first bytes of a body, then nothing.
    Stall(Vec<u8>, usize),
    /// The first bytes of a body, and the rest when the test says so.
    Held(Vec<u8>, usize, Arc<Notify>),
    /// A body byte by byte, with this pause in between.
    Drip(Vec<u8>, Duration),
}

/// A request: its path, and its headers in lower case.
pub type Asked = (String, String);

pub type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

/// Stops when it is dropped.
pub struct Canned {
    pub host: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    server: JoinHandle<()>,
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Canned {
    pub async fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_with_host(|_| Box::new(handler)).await
    }

    /// Starts a registry whose answers contain its own address.
    pub async fn start_with_host(make: impl FnOnce(&str) -> Box<Handler>) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), make).await
    }

    async fn start_at(address: IpAddr, make: impl FnOnce(&str) -> Box<Handler>) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, handler) = (asked.clone(), Arc::<Handler>::from(make(&host)));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let handler: Arc<Handler> = handler.clone();
                tokio::spawn(serve(stream, handler, seen.clone()));
            }
        });
        Self {
            host,
            asked,
            server,
        }
    }

    /// Serves an image as `x:latest`, with other answers for some paths.
    pub async fn serving(made: &Made, changes: Vec<(String, Answer)>) -> Self {
        Self::serving_at(Ipv4Addr::LOCALHOST.into(), made, changes).await
    }

    /// The same, on another address of this host.
    pub async fn serving_at(address: IpAddr, made: &Made, changes: Vec<(String, Answer)>) -> Self {
        let changes: BTreeMap<_, _> = changes.into_iter().collect();
        let other = move |(path, _): &Asked| changes.get(path).cloned();
        Self::serving_but(address, made, other).await
    }

    /// Serves an image as `x:latest`; the first download of its first layer stalls halfway.
    pub async fn stalling_once(made: &Made) -> Self {
        let blob = made.layers[0].blob.clone();
        let path = format!("/v2/x/blobs/{}", digest(&blob));
        let was_asked = AtomicBool::new(false);
        let once = move |(asked, _): &Asked| {
            let is_first = *asked == path && !was_asked.swap(true, Ordering::Relaxed);
            is_first.then(|| Answer::Stall(blob.clone(), blob.len() / 2))
        };
        Self::serving_but(Ipv4Addr::LOCALHOST.into(), made, once).await
    }

    /// Serves an image as `x:latest`, unless `other` has an answer.
    async fn serving_but(
        address: IpAddr,
        made: &Made,
        other: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let mut answers = BTreeMap::new();
        let manifest = |name: &str| format!("/v2/x/manifests/{name}");
        for name in ["latest", digest(&made.manifest).as_str()] {
            answers.insert(manifest(name), Answer::Body(made.manifest.clone()));
        }
        let blobs = made
            .layers
            .iter()
            .map(|one| &one.blob)
            .chain([&made.config]);
        for blob in blobs {
            let path = format!("/v2/x/blobs/{}", digest(blob));
            answers.insert(path, Answer::Body(blob.clone()));
        }
        let handler = move |asked: &Asked| {
            let own = || answers.get(&asked.0).cloned();
            other(asked).or_else(own).unwrap_or_else(not_found)
        };
        Self::start_at(address, |_| Box::new(handler)).await
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics here").clone()
    }
}

pub fn not_found() -> Answer {
    status("404 Not Found", "")
}

pub fn status(line: &str, headers: &str) -> Answer {
    let text = format!("HTTP/1.1 {line}\r\n{headers}content-length: 0\r\n\r\n");
    Answer::Raw(text.into_bytes())
}

async fn serve(mut stream: TcpStream, handler: Arc<Handler>, seen: Arc<Mutex<Vec<Asked>>>) {
    while let Some(asked) = request(&mut stream).await {
        seen.lock()
            .expect("no test panics here")
            .push(asked.clone());
        let goes_on = match handler(&asked) {
            Answer::Raw(bytes) => stream.write_all(&bytes).await.is_ok(),
            Answer::Body(body) => send(&mut stream, &asked, &body, body.len()).await,
            Answer::Cut(body, len) => {
                send(&mut stream, &asked, &body, len).await;
                false
            }
            Answer::Stall(body, len) => {
                send(&mut stream, &asked, &body, len).await;
                // Until the client gives up.
                let _ = stream.read(&mut [0]).await;
                false
            }
            Answer::Held(body, len, rest) => {
                let rest = rest.notified();
                send(&mut stream, &asked, &body, len).await;
                rest.await;
                stream.write_all(&body[len..]).await.is_ok()
            }
            Answer::Drip(body, pause) => {
                send(&mut stream, &asked, &body, 0).await;
                for byte in &body {
                    if stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(pause).await;
                }
                false
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// Sends at most `len` bytes of a body, from the requested offset.
async fn send(stream: &mut TcpStream, (_, headers): &Asked, body: &[u8], len: usize) -> bool {
    let range = headers
        .lines()
        .find_map(|line| line.strip_prefix("range: bytes="));
    let start = range.and_then(|range| range.strip_suffix('-')?.parse::<usize>().ok());
    let head = match start {
        Some(start) => format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {start}-{}/{}\r\ncontent-length: {}\r\n\r\n",
            body.len() - 1,
            body.len(),
            body.len() - start
        ),
        None => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()),
    };
    let rest = &body[start.unwrap_or(0)..];
    let rest = &rest[..len.min(rest.len())];
    let sent = stream.write_all(head.as_bytes()).await.is_ok();
    sent && stream.write_all(rest).await.is_ok()
}

async fn request(stream: &mut TcpStream) -> Option<Asked> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let is_end = stream.read(&mut byte).await.ok()? == 0;
        // A TLS handshake, which is not supported.
        let is_tls = text.is_empty() && byte[0] == 0x16;
        if is_end || is_tls || text.len() > 64 << 10 {
            return None;
        }
        text.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let path = text.split(' ').nth(1)?.to_owned();
    let lower = |line: &str| match line.split_once(':') {
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    };
    let headers: Vec<_> = text.lines().map(lower).collect();
    Some((path, headers.join("\n")))
}
