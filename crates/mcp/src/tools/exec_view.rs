//! An exec and its output, as clients see them.
//!
//! Output can be megabytes, so its bytes are moved into the JSON value rather than copied through a
//! type of our own.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::{ExecEnd, Usage};
use hotcell_service::{ExecView, Message};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{Answer, egress_view, exec_text};
use crate::json_size;
use hotcell_domain::rfc3339;

/// Default limit on the output in an answer.
pub(super) const POLL_BYTES_DEFAULT: u32 = 64 << 10;

/// Highest limit on the output in an answer.
pub(super) const POLL_BYTES_MAX: u32 = 4 << 20;

/// Size of a message in JSON besides its data.
const MESSAGE_BYTES: usize = 96;

/// What [`exec_answer`] makes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct Output {
    exec_id: String,
    /// queued, running, succeeded, failed, `timed_out`, cancelled, `oom_killed`, `disk_limit` or lost
    status: String,
    /// It has ended and all output was read
    complete: bool,
    messages: Vec<Chunk>,
    /// Pass it as `after_seq`
    next_seq: u64,
    exit_code: Option<u8>,
    signal: Option<u8>,
    reason: Option<String>,
    not_started: Option<String>,
    usage: Option<UsageView>,
    /// Bytes from the middle that were not kept
    truncated_bytes: u64,
    egress: Option<egress_view::Egress>,
    next_step: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
struct Chunk {
    seq: u64,
    /// stdout or stderr
    stream: String,
    data: String,
    ts: String,
    /// base64 if data is not text
    encoding: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct UsageView {
    wall_ms: u64,
    user_ms: u64,
    system_ms: u64,
    max_rss_bytes: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

/// The complete answer about an exec, with as much output as fits.
pub(crate) fn exec_answer(mut view: ExecView, bytes_max: usize) -> Answer {
    fit(&mut view, bytes_max);
    let text = exec_text::render(&view);
    let mut object = JsonObject::new();
    object.insert("exec_id".to_owned(), view.id.as_str().into());
    object.insert("status".to_owned(), view.status.as_str().into());
    object.insert("complete".to_owned(), view.is_complete.into());
    object.insert("next_seq".to_owned(), view.next_seq.into());
    object.insert("truncated_bytes".to_owned(), view.truncated_bytes.into());
    if let Some(next) = exec_text::next_step(&view) {
        object.insert("next_step".to_owned(), next.into());
    }
    if let Some(report) = &view.egress {
        object.insert("egress".to_owned(), egress_view::structured(report));
    }
    if let Some(end) = &view.end {
        insert_end(&mut object, end);
    } else if let Some(reason) = view.stalled {
        object.insert("reason".to_owned(), reason.into());
    }
    let messages = view.messages.into_iter().map(message);
    object.insert("messages".to_owned(), Value::Array(messages.collect()));
    Answer::new(text, Value::Object(object))
}

/// Leaves messages that do not fit to the next poll: many small messages cost more than their data.
/// The first one always stays, so that every poll makes progress.
fn fit(view: &mut ExecView, bytes_max: usize) {
    let mut left = bytes_max;
    let fitting = view.messages.iter().take_while(|message| {
        let cost = cost(message);
        let fits = cost <= left;
        left = left.saturating_sub(cost);
        fits
    });
    let count = fitting.count().max(1);
    if count < view.messages.len() {
        view.messages.truncate(count);
        view.is_complete = false;
        view.next_seq = view.messages.last().map_or(view.next_seq, |last| last.seq);
    }
}

fn cost(message: &Message) -> usize {
    let is_text = std::str::from_utf8(&message.data).is_ok();
    MESSAGE_BYTES
        + if is_text {
            json_size::of_text(&message.data)
        } else {
            message.data.len().div_ceil(3) * 4
        }
}

/// How an exec ended: each field that is known.
pub(super) fn insert_end(object: &mut JsonObject, end: &ExecEnd) {
    let mut insert = |name: &str, value: Option<Value>| {
        object.extend(value.map(|value| (name.to_owned(), value)));
    };
    insert("exit_code", end.exit_code.map(Value::from));
    insert("signal", end.signal.map(Value::from));
    insert("reason", end.reason.as_deref().map(Value::from));
    let cause = end.not_started.map(|cause| cause.as_str().into());
    insert("not_started", cause);
    insert("usage", end.usage.as_ref().map(usage));
}

fn message(message: Message) -> Value {
    let mut object = JsonObject::new();
    object.insert("seq".to_owned(), message.seq.into());
    object.insert("stream".to_owned(), message.stream.as_str().into());
    object.insert("ts".to_owned(), rfc3339(message.unix_ms).into());
    let data = match String::from_utf8(message.data.into()) {
        Ok(text) => text,
        Err(error) => {
            object.insert("encoding".to_owned(), "base64".into());
            BASE64_STANDARD.encode(error.as_bytes())
        }
    };
    object.insert("data".to_owned(), Value::String(data));
    Value::Object(object)
}

fn usage(usage: &Usage) -> Value {
    json!({
        "wall_ms": usage.wall_ms,
        "user_ms": usage.user_ms,
        "system_ms": usage.system_ms,
        "max_rss_bytes": usage.max_rss_bytes,
        "stdout_bytes": usage.stdout_bytes,
        "stderr_bytes": usage.stderr_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hotcell_domain::Stream;

    #[test]
    fn a_message_costs_what_it_becomes_in_json() {
        let texts: [&'static [u8]; 5] = [
            b"plain",
            b"\0\x1b[0m",
            b"\"\\\n\t\r\x08\x0c",
            "ä€😀".as_bytes(),
            b"",
        ];
        for data in texts {
            let sent = Message {
                seq: 1,
                stream: Stream::Stdout,
                unix_ms: 0,
                data: Bytes::from_static(data),
            };
            let cost = cost(&sent) - MESSAGE_BYTES;
            let json = message(sent)["data"].to_string();
            assert_eq!(cost, json.len() - 2, "{json}");
        }
    }
}
