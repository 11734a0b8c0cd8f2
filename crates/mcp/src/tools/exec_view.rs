//! An exec and its output, as clients see them.
//!
//! Output can be megabytes, so its bytes are moved into the JSON value and not copied
//! through a type of ours.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::{ExecEnd, Usage};
use hotcell_service::{ExecView, Message};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{Answer, exec_text};
use crate::words::rfc3339;

/// Output answered where the caller says nothing.
pub(super) const POLL_BYTES_DEFAULT: u32 = 64 << 10;

/// Output answered at most.
pub(super) const POLL_BYTES_MAX: u32 = 4 << 20;

/// What [`exec_answer`] makes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct Output {
    exec_id: String,
    messages: Vec<Chunk>,
    next_seq: u64,
    status: String,
    complete: bool,
    exit_code: Option<u8>,
    signal: Option<u8>,
    #[schemars(skip)]
    reason: Option<String>,
    #[schemars(skip)]
    not_started: Option<String>,
    #[schemars(skip)]
    usage: Option<Used>,
    truncated_bytes: u64,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
struct Chunk {
    seq: u64,
    stream: String,
    data: String,
    ts: String,
    encoding: Option<String>,
}

#[derive(JsonSchema)]
struct Used {}

/// All a client is told of an exec.
pub(crate) fn exec_answer(view: ExecView) -> Answer {
    let text = exec_text::render(&view);
    let mut object = JsonObject::new();
    object.insert("exec_id".to_owned(), view.id.as_str().into());
    object.insert("status".to_owned(), view.status.as_str().into());
    object.insert("complete".to_owned(), view.is_complete.into());
    object.insert("next_seq".to_owned(), view.next_seq.into());
    object.insert("truncated_bytes".to_owned(), view.truncated_bytes.into());
    if let Some(end) = &view.end {
        insert_end(&mut object, end);
    } else if let Some(reason) = view.held_up {
        object.insert("reason".to_owned(), reason.into());
    }
    let messages = view.messages.into_iter().map(message);
    object.insert("messages".to_owned(), Value::Array(messages.collect()));
    Answer::new(text, Value::Object(object))
}

/// How an exec ended: each part that is known.
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
