//! The first words with a server: which protocol, and what it can do.
//!
//! A program on standard streams is asked by `initialize` first, since nearly all of them know nothing
//! else and some end when they are asked anything else. A server on the network is asked by
//! `server/discover` first, as revision 2026-07-28 wants it, and whoever does not know that is older.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::bounds::DESCRIPTION_BYTES_MAX;
use crate::connection::{Connection, Request, RequestError};
use crate::error::UpstreamError;
use crate::rpc::{Failure, Params};
use crate::settings::TransportKind;
use crate::text::{on_one_line, quoted};

/// Revisions that begin with `initialize`, the one that we offer first.
const INITIALIZED: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// JSON-RPC: no such method.
const METHOD_NOT_FOUND: i64 = -32601;
/// MCP: not in this revision.
const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// What both sides speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// A session that `initialize` began.
    Session {
        /// The revision.
        version: &'static str,
    },
    /// Every request says everything.
    Stateless,
}

/// What a server says about itself.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    pub(crate) title: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) instructions: Option<String>,
    /// Whether it has tools; an old one may not say.
    pub(crate) has_tools: bool,
    /// Whether it says when they change.
    pub(crate) tells_changes: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    protocol_version: Option<String>,
    supported_versions: Option<Vec<String>>,
    #[serde(default)]
    capabilities: Value,
    #[serde(default)]
    server_info: Value,
    #[serde(rename = "_meta", default)]
    meta: Value,
    instructions: Option<String>,
}

impl Protocol {
    /// The revision without sessions.
    pub(crate) const STATELESS: &'static str = "2026-07-28";

    pub(crate) fn version(&self) -> &'static str {
        match self {
            Self::Session { version } => version,
            Self::Stateless => Self::STATELESS,
        }
    }

    pub(crate) fn is_stateless(&self) -> bool {
        matches!(self, Self::Stateless)
    }
}

/// Who we are.
pub(crate) fn client_info() -> Value {
    json!({ "name": "hotcell", "version": env!("CARGO_PKG_VERSION") })
}

/// Agrees on a protocol.
pub(crate) async fn greet(
    connection: &Arc<Connection>,
    kind: TransportKind,
    timeout: Duration,
) -> Result<Hello, UpstreamError> {
    let hello = match kind {
        TransportKind::Sse => initialize(connection, timeout).await,
        TransportKind::Stdio => match initialize(connection, timeout).await {
            Err(error) if is_newer(&error) => discover(connection, timeout).await,
            other => other,
        },
        TransportKind::Http => match discover(connection, timeout).await {
            Err(error) if is_older(&error) => initialize(connection, timeout).await,
            other => other,
        },
    };
    hello.map_err(|error| connection.described(error))
}

fn is_newer(error: &RequestError) -> bool {
    matches!(error, RequestError::Failed(Failure::Rpc(error)) if [METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION].contains(&error.code))
}

/// Whatever a server says to `server/discover`, except that it does not want us.
fn is_older(error: &RequestError) -> bool {
    match error {
        RequestError::Failed(Failure::Refused(status)) => ![401, 403].contains(status),
        RequestError::Failed(Failure::Rpc(_) | Failure::Protocol(_) | Failure::SessionLost) => true,
        RequestError::Failed(Failure::Closed(_) | Failure::TooLarge | Failure::Unreachable)
        | RequestError::Timeout(_)
        | RequestError::RequestTooLarge
        | RequestError::Busy => false,
    }
}

async fn initialize(
    connection: &Arc<Connection>,
    timeout: Duration,
) -> Result<Hello, RequestError> {
    let params = Params {
        protocol_version: Some(INITIALIZED[0]),
        capabilities: Some(json!({})),
        client_info: Some(client_info()),
        ..Params::default()
    };
    let request = Request {
        method: "initialize",
        params,
        progress: None,
        timeout,
    };
    let answer = parse(&connection.request(request).await?)?;
    let chosen = answer.protocol_version.as_deref();
    let version = INITIALIZED.into_iter().find(|known| Some(*known) == chosen);
    let version = version.ok_or_else(|| protocol("it speaks no revision of MCP that we know"))?;
    // Nobody else agrees on anything here.
    let _ = connection.protocol.set(Protocol::Session { version });
    connection.link.agreed(version);
    let told = connection
        .notify("notifications/initialized", Params::default())
        .await;
    told.map_err(RequestError::Failed)?;
    Ok(answer.hello())
}

async fn discover(connection: &Arc<Connection>, timeout: Duration) -> Result<Hello, RequestError> {
    let request = Request {
        method: "server/discover",
        params: Params::default(),
        progress: None,
        timeout,
    };
    let answer = parse(&connection.request(request).await?)?;
    let supported = answer.supported_versions.as_deref().unwrap_or_default();
    if !supported
        .iter()
        .any(|version| version == Protocol::STATELESS)
    {
        return Err(protocol("it speaks no revision of MCP that we know"));
    }
    let _ = connection.protocol.set(Protocol::Stateless);
    Ok(answer.hello())
}

fn parse(result: &RawValue) -> Result<Answer, RequestError> {
    serde_json::from_str(result.get()).map_err(|_| protocol("its first answer is malformed"))
}

fn protocol(reason: &'static str) -> RequestError {
    RequestError::Failed(Failure::Protocol(reason))
}

impl Answer {
    fn hello(self) -> Hello {
        let later = &self.meta["io.modelcontextprotocol/serverInfo"];
        let info = if self.server_info.is_object() {
            &self.server_info
        } else {
            later
        };
        let told = |field: &str| info[field].as_str().map(|text| on_one_line(text, 128));
        Hello {
            title: told("title").or_else(|| told("name")),
            version: told("version"),
            has_tools: self.capabilities["tools"].is_object(),
            tells_changes: self.capabilities["tools"]["listChanged"] == true,
            instructions: self
                .instructions
                .map(|text| quoted(&text, DESCRIPTION_BYTES_MAX).into_owned()),
        }
    }
}
