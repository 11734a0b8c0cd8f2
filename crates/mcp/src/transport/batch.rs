//! JSON-RPC batches: several messages in one array, answered by one array. Only protocol version
//! 2025-03-26 has them.

use std::fmt;

use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, JsonRpcMessage, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

use super::limits::BATCH_MESSAGES_MAX;
use super::reply_budget::ReplyLease;

/// The messages of a batch, each an object.
#[derive(Debug)]
pub struct Batch(pub Vec<Value>);

/// Whether a message is a batch: it starts with a bracket.
pub fn is_batch(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'[')
}

/// The error for a batch in another protocol version.
pub const WRONG_VERSION: &str =
    "batches are for protocol version 2025-03-26; send one message at a time";

impl Batch {
    /// Parses a batch.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let batch: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if batch.0.is_empty() {
            return Err("the batch is empty".to_owned());
        }
        let is_initialize = |message: &Value| message["method"] == "initialize";
        if batch.0.iter().any(is_initialize) {
            return Err("`initialize` cannot be part of a batch".to_owned());
        }
        Ok(batch)
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BatchVisitor)
    }
}

/// Stops at the first message beyond the limit.
struct BatchVisitor;

impl<'de> Visitor<'de> for BatchVisitor {
    type Value = Batch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of JSON-RPC messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<Batch, A::Error> {
        let mut batch = Vec::new();
        while let Some(message) = messages.next_element::<Value>()? {
            if batch.len() == BATCH_MESSAGES_MAX {
                return Err(A::Error::custom(format!(
                    "a batch may have {BATCH_MESSAGES_MAX} messages"
                )));
            }
            batch.push(message);
        }
        Ok(Batch(batch))
    }
}

/// The error for an item of a batch that is not a message.
pub fn no_message(item: &Value) -> ServerJsonRpcMessage {
    let id = item.get("id").cloned();
    let id = id.and_then(|id| serde_json::from_value::<RequestId>(id).ok());
    let error = ErrorData::invalid_request("this is no JSON-RPC 2.0 message", None);
    JsonRpcMessage::error(error, id)
}

/// An outgoing message or batch, with its part of the reply budget.
#[derive(Debug)]
pub(crate) struct OutgoingReply {
    pub(crate) what: OutgoingMessages,
    pub(crate) replies: Vec<ReplyLease>,
}

#[derive(Debug)]
pub(crate) enum OutgoingMessages {
    /// A single message.
    One(Box<ServerJsonRpcMessage>),
    /// The answers to a batch.
    All(Vec<ServerJsonRpcMessage>),
}

/// The batches of one connection whose answers are being collected.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    is_allowed: bool,
    open: Vec<OpenBatch>,
}

#[derive(Debug)]
struct OpenBatch {
    /// Requests without an answer yet.
    waiting: Vec<RequestId>,
    answers: Vec<ServerJsonRpcMessage>,
    replies: Vec<ReplyLease>,
}

impl OutgoingReply {
    pub(crate) fn one(message: ServerJsonRpcMessage, reply: Option<ReplyLease>) -> Self {
        Self {
            what: OutgoingMessages::One(Box::new(message)),
            replies: reply.into_iter().collect(),
        }
    }

    /// `None` if there is nothing to send.
    fn all(answers: Vec<ServerJsonRpcMessage>, replies: Vec<ReplyLease>) -> Option<Self> {
        let what = OutgoingMessages::All(answers);
        let is_empty = matches!(&what, OutgoingMessages::All(answers) if answers.is_empty());
        (!is_empty).then_some(Self { what, replies })
    }
}

impl Batches {
    /// Whether the negotiated version has batches.
    pub(crate) fn are_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Splits a batch into the messages to handle now, and the answers if there is nothing to wait
    /// for.
    pub(crate) fn begin(
        &mut self,
        batch: Batch,
    ) -> (Vec<ClientJsonRpcMessage>, Option<OutgoingReply>) {
        let (mut messages, mut waiting, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for item in batch.0 {
            match serde_json::from_value::<ClientJsonRpcMessage>(item.clone()) {
                Ok(message) => {
                    if let JsonRpcMessage::Request(request) = &message {
                        waiting.push(request.id.clone());
                    }
                    messages.push(message);
                }
                Err(_) => answers.push(no_message(&item)),
            }
        }
        if waiting.is_empty() {
            return (messages, OutgoingReply::all(answers, Vec::new()));
        }
        self.open.push(OpenBatch {
            waiting,
            answers,
            replies: Vec::new(),
        });
        (messages, None)
    }

    /// What to send for `message`: itself, nothing yet, or all answers of its batch.
    pub(crate) fn outgoing(
        &mut self,
        message: ServerJsonRpcMessage,
        reply: Option<ReplyLease>,
    ) -> Option<OutgoingReply> {
        let id = match &message {
            JsonRpcMessage::Response(response) => {
                if let ServerResult::InitializeResult(agreed) = &response.result {
                    self.is_allowed = agreed.protocol_version == ProtocolVersion::V_2025_03_26;
                }
                Some(&response.id)
            }
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        match id.and_then(|id| self.take_waiting(id)) {
            None => Some(OutgoingReply::one(message, reply)),
            Some(number) => {
                self.open[number].answers.push(message);
                self.open[number].replies.extend(reply);
                self.complete(number)
            }
        }
    }

    /// A cancelled request gets no answer, and its batch does not wait for it.
    pub(crate) fn forget(&mut self, id: &RequestId) -> Option<OutgoingReply> {
        let number = self.take_waiting(id)?;
        self.complete(number)
    }

    /// Marks an answer as received; returns the index of its batch.
    fn take_waiting(&mut self, id: &RequestId) -> Option<usize> {
        self.open.iter_mut().enumerate().find_map(|(number, open)| {
            let position = open.waiting.iter().position(|waiting| waiting == id)?;
            open.waiting.swap_remove(position);
            Some(number)
        })
    }

    fn complete(&mut self, number: usize) -> Option<OutgoingReply> {
        if !self.open[number].waiting.is_empty() {
            return None;
        }
        let open = self.open.swap_remove(number);
        OutgoingReply::all(open.answers, open.replies)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(json: &Value) -> Result<Batch, String> {
        Batch::parse(json.to_string().as_bytes())
    }

    fn ping(id: u64) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })
    }

    fn pong(id: i64) -> ServerJsonRpcMessage {
        JsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(id))
    }

    /// Ids of what is sent.
    fn sent(sending: Option<OutgoingReply>) -> Vec<Value> {
        let messages = match sending.map(|sending| sending.what) {
            None => Vec::new(),
            Some(OutgoingMessages::One(message)) => vec![*message],
            Some(OutgoingMessages::All(messages)) => messages,
        };
        let id = |message| serde_json::to_value(message).unwrap()["id"].clone();
        messages.into_iter().map(id).collect()
    }

    #[test]
    fn a_batch_is_bounded_and_never_begins_a_conversation() {
        assert!(parsed(&json!([ping(1)])).is_ok());
        for refused in [
            json!([]),
            json!(vec![1; BATCH_MESSAGES_MAX + 1]),
            json!([{ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {} }]),
        ] {
            assert!(parsed(&refused).is_err(), "{refused}");
        }
        // The input is not read to its end.
        let endless = format!("[{}", "1,".repeat(1 << 20));
        let error = Batch::parse(endless.as_bytes()).unwrap_err();
        assert!(error.contains("a batch may have"), "{error}");
    }

    #[test]
    fn answers_go_out_when_the_last_is_there() {
        let mut batches = Batches::default();
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let batch = parsed(&json!([ping(1), cancelled, 7, ping(2)])).unwrap();
        let (messages, done) = batches.begin(batch);
        assert_eq!((messages.len(), sent(done)), (3, vec![]));
        assert_eq!(sent(batches.outgoing(pong(9), None)), [json!(9)]);
        assert_eq!(sent(batches.outgoing(pong(2), None)), [] as [Value; 0]);
        assert_eq!(
            sent(batches.outgoing(pong(1), None)),
            [json!(null), json!(2), json!(1)]
        );
        assert!(batches.open.is_empty());
    }

    #[test]
    fn a_cancelled_request_holds_nothing_up() {
        let mut batches = Batches::default();
        batches.begin(parsed(&json!([ping(1), ping(2)])).unwrap());
        assert_eq!(sent(batches.outgoing(pong(1), None)), [] as [Value; 0]);
        assert_eq!(sent(batches.forget(&RequestId::Number(2))), [json!(1)]);
        assert_eq!(
            sent(batches.forget(&RequestId::Number(2))),
            [] as [Value; 0]
        );
    }

    #[test]
    fn a_batch_without_requests_is_answered_only_for_what_is_wrong() {
        let mut batches = Batches::default();
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let (messages, done) = batches.begin(parsed(&json!([note])).unwrap());
        assert_eq!((messages.len(), sent(done).len()), (1, 0));
        let (_, done) = batches.begin(parsed(&json!([1, 2])).unwrap());
        assert_eq!(sent(done).len(), 2);
    }
}
