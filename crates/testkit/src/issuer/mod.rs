//! A small issuer of access tokens: signs any claims that a test needs, with real keys, and counts
//! requests for its public keys.

#![expect(missing_docs, reason = "what a test calls reads as what it does")]
#![expect(clippy::unwrap_used, reason = "a test may fail here")]

mod signer;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::SystemTime;

use serde_json::{Value, json};

pub use signer::{Signer, encoded, message};

/// The audience of its tokens.
pub const AUDIENCE: &str = "https://cells.example/mcp";

/// An issuer that listens as long as the test's process lives.
pub struct Issuer {
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    url: String,
    keys: Vec<Value>,
    is_down: bool,
    is_held: bool,
    /// Number of requests for its keys.
    fetches: usize,
}

impl Issuer {
    pub fn start(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        shared.change(|state| state.url.clone_from(&url));
        let issuer = Self {
            url,
            shared: Arc::clone(&shared),
        };
        issuer.has(keys);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.answer(stream));
            }
        });
        issuer
    }

    /// Sets the published keys.
    pub fn has(&self, keys: &[&Signer]) {
        let keys = keys.iter().map(|key| key.jwk()).collect();
        self.shared.change(|state| state.keys = keys);
    }

    pub fn goes_down(&self) {
        self.shared.change(|state| state.is_down = true);
    }

    pub fn comes_back(&self) {
        self.shared.change(|state| state.is_down = false);
    }

    /// Accepts requests for its keys, but does not answer them.
    pub fn holds_its_answer(&self) {
        self.shared.change(|state| state.is_held = true);
    }

    pub fn answers(&self) {
        self.shared.change(|state| state.is_held = false);
    }

    /// Number of requests for its keys.
    pub fn fetches(&self) -> usize {
        self.shared.state.lock().unwrap().fetches
    }

    /// Claims that are valid now and for five minutes.
    pub fn claims(&self) -> Value {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        self.claims_at(now.as_secs())
    }

    /// Claims that are valid at another time.
    pub fn claims_at(&self, unix_s: u64) -> Value {
        json!({
            "iss": self.url, "sub": "alice", "aud": AUDIENCE,
            "iat": unix_s, "exp": unix_s + 300, "scope": "hotcell:use",
        })
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !stream.read(&mut byte).is_ok_and(|read| read == 1) {
                return;
            }
            head.push(byte[0]);
        }
        if let Some(body) = self.body(head.starts_with(b"GET /keys ")) {
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            // The client may be gone.
            let _ = stream.write_all(answer.as_bytes());
        }
    }

    fn body(&self, is_about_keys: bool) -> Option<String> {
        let mut state = self.state.lock().unwrap();
        if state.is_down {
            return None;
        }
        if !is_about_keys {
            let keys = format!("{}/keys", state.url);
            return Some(json!({ "issuer": state.url, "jwks_uri": keys }).to_string());
        }
        state.fetches += 1;
        let held = self.changed.wait_while(state, |state| state.is_held);
        Some(json!({ "keys": held.unwrap().keys }).to_string())
    }
}
