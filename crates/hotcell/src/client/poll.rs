//! Polls the output of an exec.

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::output::Message;

/// How long the server may wait for news before it answers.
const WAIT_S: u32 = 30;

/// Output per poll.
const POLL_BYTES_MAX: u32 = 1 << 20;

/// An exec and a part of its output, as `exec_poll` returns it.
#[derive(Debug, Deserialize)]
pub(super) struct Polled {
    #[serde(default)]
    pub(super) messages: Vec<Value>,
    next_seq: u64,
    pub(super) complete: bool,
    #[serde(flatten)]
    pub(super) end: End,
}

/// The status of an exec, or its result.
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
    /// Starts at the beginning.
    pub(super) fn new(server: Server, exec_id: String) -> Self {
        Self {
            server,
            exec_id,
            after_seq: 0,
        }
    }

    /// The next part; with `wait`, once there is one.
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
    /// The parsed messages.
    pub(super) fn read_messages(&mut self) -> Result<Vec<Message>> {
        let messages = std::mem::take(&mut self.messages);
        let read = messages.into_iter().map(serde_json::from_value);
        Ok(read.collect::<Result<_, _>>()?)
    }
}
