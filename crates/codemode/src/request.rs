//! What a script may ask for.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A frame of a script, parsed. Anything else is refused.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The first one: proves that it is the script.
    Hello {
        secret: String,
        /// Whether it knows already what it is told first.
        #[serde(default)]
        is_welcome: bool,
    },
    Call(Call),
    Tools {
        server: String,
    },
    Servers {},
    Search {
        query: String,
        #[serde(default)]
        limit: Option<u64>,
        #[serde(default)]
        servers: Option<Vec<String>>,
    },
    Summary {},
    Resources {
        server: String,
    },
    ReadResource {
        server: String,
        uri: String,
    },
    Prompts {
        server: String,
    },
    Prompt {
        server: String,
        name: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    },
    MemorySave {
        key: String,
        value: Value,
        #[serde(default)]
        metadata: Option<Value>,
        #[serde(default)]
        if_version: Option<u64>,
    },
    MemoryLoad {
        key: String,
    },
    MemoryDelete {
        key: String,
    },
    MemoryList {
        #[serde(default)]
        prefix: String,
    },
    ToolSave {
        name: String,
        source: String,
        #[serde(default)]
        description: Option<String>,
    },
    ToolLoad {
        name: String,
    },
    ToolList {},
    /// Nobody waits for this request any more.
    Cancel {},
    /// The last one.
    End(End),
}

/// A call of a tool.
#[derive(Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    #[serde(default)]
    pub(crate) progress: bool,
}

/// How the script ended, as it says.
#[derive(Debug, Deserialize)]
pub(crate) struct End {
    pub(crate) status: EndStatus,
    #[serde(default)]
    pub(crate) result: Option<Value>,
    #[serde(default)]
    pub(crate) result_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndStatus {
    Success,
    Error,
    ValidationError,
}

impl Request {
    /// Parses a frame. JSON that is nested more than 128 times is refused by the parser.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_request_is_refused() {
        let deep = format!(
            r#"{{"op":"call","server":"a","tool":"b","arguments":{{"x":{}1{}}}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        for bad in [
            "",
            "1",
            "{}",
            r#"{"op":"fork"}"#,
            r#"{"op":"call","server":"a"}"#,
            r#"{"op":"call","server":"a","tool":"b","arguments":[1]}"#,
            r#"{"op":"end","status":"great"}"#,
            "\u{0}",
            &deep,
        ] {
            assert!(
                Request::parse(bad.as_bytes()).is_err(),
                "{}",
                &bad[..bad.len().min(80)]
            );
        }
        let good = r#"{"op":"call","server":"a","tool":"b","arguments":{"x":[[1]]}}"#;
        assert!(matches!(
            Request::parse(good.as_bytes()),
            Ok(Request::Call(_))
        ));
    }
}
