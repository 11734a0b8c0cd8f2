//! Messages.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bounds::BATCH_MESSAGES_MAX;

/// Something that an upstream sent.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The answer to one of our requests.
    Response {
        id: u64,
        outcome: Result<Box<RawValue>, RpcError>,
    },
    /// A request of its own. Its id is sent back as it came.
    Request { id: Box<RawValue>, method: String },
    /// Something that wants no answer.
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

/// An error as JSON-RPC has it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
}

/// Not a message of JSON-RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbage;

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The messages of a text: one, or those of a batch.
pub(crate) fn messages(text: &str) -> Result<Vec<Incoming>, Garbage> {
    if !text.trim_start().starts_with('[') {
        return Ok(vec![message(text)?]);
    }
    let batch: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| Garbage)?;
    if batch.len() > BATCH_MESSAGES_MAX {
        return Err(Garbage);
    }
    batch.into_iter().map(|raw| message(raw.get())).collect()
}

fn message(text: &str) -> Result<Incoming, Garbage> {
    let raw: Raw<'_> = serde_json::from_str(text).map_err(|_| Garbage)?;
    let id = raw.id.filter(|id| id.get() != "null");
    match (raw.method, id) {
        (Some(method), Some(id)) => Ok(Incoming::Request {
            id: id.to_owned(),
            method,
        }),
        (Some(method), None) => Ok(Incoming::Notification {
            method,
            params: raw.params.map(ToOwned::to_owned),
        }),
        (None, Some(id)) => {
            let id = id.get().parse().map_err(|_| Garbage)?;
            let outcome = match (raw.result, raw.error) {
                (Some(result), None) => Ok(result.to_owned()),
                (None, Some(error)) => Err(serde_json::from_str(error.get()).map_err(|_| Garbage)?),
                _ => return Err(Garbage),
            };
            Ok(Incoming::Response { id, outcome })
        }
        (None, None) => Err(Garbage),
    }
}

/// A message of ours.
#[derive(Debug, Serialize)]
pub(crate) struct Outgoing<'a> {
    pub(crate) jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<u64>,
    pub(crate) method: &'a str,
    pub(crate) params: Params<'a>,
}

/// The parameters of every method that we use; each uses a few of them.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uri: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capabilities: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_info: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notifications: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<Meta<'a>>,
}

/// What accompanies the parameters of a request.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Meta<'a> {
    #[serde(rename = "progressToken", skip_serializing_if = "Option::is_none")]
    pub(crate) progress_token: Option<u64>,
    #[serde(
        rename = "io.modelcontextprotocol/protocolVersion",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) protocol_version: Option<&'a str>,
    #[serde(
        rename = "io.modelcontextprotocol/clientInfo",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) client_info: Option<Value>,
    #[serde(
        rename = "io.modelcontextprotocol/clientCapabilities",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) client_capabilities: Option<Value>,
}

/// Our answer to a request of an upstream: `ping` is answered, everything else (sampling,
/// elicitation, roots) is something that we never said we could do.
pub(crate) fn refusal(id: &RawValue, method: &str) -> String {
    if method == "ping" {
        return format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    }
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"this client does not support it"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        match messages(text) {
            Ok(messages) => format!("{messages:?}"),
            Err(Garbage) => "garbage".to_owned(),
        }
    }

    #[test]
    fn messages_are_told_apart() {
        assert!(
            said(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#)
                .starts_with("[Response { id: 7, outcome: Ok(")
        );
        assert!(
            said(r#"{"id":7,"error":{"code":-3,"message":"x","data":{}}}"#).contains("code: -3")
        );
        assert!(said(r#"{"id":"s","method":"ping"}"#).starts_with("[Request"));
        assert!(said(r#"{"method":"m","params":{"a":[1]}}"#).starts_with("[Notification"));
        assert!(said(r#"[{"id":1,"result":{}},{"method":"m"}]"#).contains("Notification"));
    }

    #[test]
    fn garbage_is_garbage() {
        let deep = format!("{{\"id\":{}1", "[".repeat(100_000));
        for text in [
            "",
            "hello",
            "{",
            "{}",
            "7",
            r#"{"id":"7","result":1}"#,
            r#"{"id":7}"#,
            r#"{"id":-1,"result":1}"#,
            &deep,
        ] {
            assert_eq!(said(text), "garbage", "{}", &text[..text.len().min(40)]);
        }
        let batch = format!("[{}1]", r#"{"method":"m"},"#.repeat(BATCH_MESSAGES_MAX));
        assert_eq!(said(&batch), "garbage");
    }

    #[test]
    fn a_request_of_an_upstream_is_refused_and_a_ping_answered() {
        let id = RawValue::from_string("\"x\"".to_owned()).unwrap();
        assert_eq!(
            refusal(&id, "ping"),
            r#"{"jsonrpc":"2.0","id":"x","result":{}}"#
        );
        assert!(refusal(&id, "sampling/createMessage").contains("-32601"));
    }
}
