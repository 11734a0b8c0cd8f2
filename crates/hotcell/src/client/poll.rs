//! Asking for what an exec wrote.

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::output::Message;

/// How long the server may hold a question for want of news.
const WAIT_S: u32 = 30;

/// Output asked for at once.
const POLL_BYTES_MAX: u32 = 1 << 20;

/// An exec and a part of what it wrote, as `exec_poll` tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Polled {
    #[serde(default)]
    pub(super) messages: Vec<Value>,
    next_seq: u64,
    pub(super) complete: bool,
    #[serde(flatten)]
    pub(super) end: End,
}

/// How an exec is, or how it ended.
#[derive(Debug, Deserialize)]
pub(super) struct End {
    pub(super) status: String,
    pub(super) exit_code: Option<u8>,
    pub(super) signal: Option<u8>,
    pub(super) reason: Option<String>,
    pub(super) not_started: Option<String>,
    pub(super) usage: Option<Value>,
    #[serde(default)]
    pub(super) truncated_bytes: u64,
}

/// Reads one exec's output in order.
pub(super) struct Reader {
    server: Server,
    exec_id: String,
    after_seq: u64,
}

impl Reader {
    /// From the beginning.
    pub(super) fn new(server: Server, exec_id: String) -> Self {
        Self {
            server,
            exec_id,
            after_seq: 0,
        }
    }

    /// What comes next; with `wait`, when there is something.
    pub(super) async fn next(&mut self, wait: bool) -> Result<Polled> {
        let arguments = json!({
            "exec_id": self.exec_id,
            "after_seq": self.after_seq,
            "wait_s": if wait { WAIT_S } else { 0 },
            "max_bytes": POLL_BYTES_MAX,
        });
        let polled: Polled = self.server.call("exec_poll", arguments).await?;
        self.after_seq = polled.next_seq;
        Ok(polled)
    }
}

impl Polled {
    /// The messages, read.
    pub(super) fn read_messages(&mut self) -> Result<Vec<Message>> {
        let messages = std::mem::take(&mut self.messages);
        let read = messages.into_iter().map(serde_json::from_value);
        Ok(read.collect::<Result<_, _>>()?)
    }
}
