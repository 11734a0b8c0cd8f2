//! The connection to the running server.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use hotcell_mcp::transport::Socket;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ClientRequest, CustomRequest,
    Implementation, JsonObject, MetaObject, RequestMetaObject,
};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::cli::StateArgs;
use crate::state;

/// The running server. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Server {
    client: Arc<RunningService<RoleClient, ClientConfig>>,
}

impl Server {
    /// Connects to the server that owns the state directory.
    pub(super) async fn connect(state: &StateArgs) -> Result<Self> {
        let directory = state::directory(state.state_dir.clone())?;
        let socket = Socket::connect(&state::socket(&directory)).await;
        Self::over(socket.map_err(|error| explain(&error, &directory))?).await
    }

    /// The same; `None` if there is no server.
    pub(crate) async fn find(state: &StateArgs) -> Result<Option<Self>> {
        let directory = state::directory(state.state_dir.clone())?;
        match Socket::connect(&state::socket(&directory)).await {
            Ok(stream) => Self::over(stream).await.map(Some),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(explain(&error, &directory))
            }
            Err(_) => Ok(None),
        }
    }

    /// The server at the other end of a connection.
    pub(crate) async fn over(stream: UnixStream) -> Result<Self> {
        let client = config().serve(stream).await.context("greet the server")?;
        Ok(Self {
            client: Arc::new(client),
        })
    }

    /// Sends a request that is not a tool call.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Option<Value>,
    ) -> Result<T> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, params));
        let answer = self.client.send_request(request).await;
        let answer = answer.with_context(|| format!("ask the server for {method}"))?;
        let answer = serde_json::to_value(answer)?;
        serde_json::from_value(answer).with_context(|| format!("read the answer to {method}"))
    }

    /// Calls a tool and returns its structured content. An error of the tool keeps the server's
    /// wording.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        arguments: Value,
    ) -> Result<T> {
        self.call_with(tool, arguments, JsonObject::new()).await
    }

    /// The same; the request has `meta` besides.
    pub(crate) async fn call_with<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        arguments: Value,
        meta: JsonObject,
    ) -> Result<T> {
        let Value::Object(arguments) = arguments else {
            bail!("arguments are an object");
        };
        let mut params = CallToolRequestParams::new(tool).with_arguments(arguments);
        if !meta.is_empty() {
            params.meta = Some(RequestMetaObject(MetaObject(meta)));
        }
        let result = self.client.call_tool(params).await;
        let result = result.with_context(|| format!("call {tool} on the server"))?;
        if result.is_error == Some(true) {
            return Err(ToolFailure::of(&result).into());
        }
        let content = result.structured_content.unwrap_or_default();
        serde_json::from_value(content).with_context(|| format!("read the answer of {tool}"))
    }
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.client_info = Implementation::new("hotcell", env!("CARGO_PKG_VERSION"));
    config
}

/// The error that a tool returned.
#[derive(Debug)]
pub(super) struct ToolFailure {
    code: String,
    message: String,
    hint: String,
}

impl ToolFailure {
    fn of(result: &CallToolResult) -> Self {
        let content = result.structured_content.as_ref();
        let field = |name| {
            let text = content.and_then(|content| content.get(name)?.as_str());
            text.unwrap_or_default().to_owned()
        };
        Self {
            code: field("code"),
            message: field("message"),
            hint: field("hint"),
        }
    }

    /// Whether a call failed with this error code of a tool.
    pub(super) fn is(error: &anyhow::Error, code: &str) -> bool {
        let refused = error.downcast_ref::<Self>();
        refused.is_some_and(|refused| refused.code == code)
    }
}

impl std::error::Error for ToolFailure {}

impl fmt::Display for ToolFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match for_people(&self.hint) {
            Some(hint) => write!(f, "{}; {hint}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Hints of tools that have a counterpart on the command line.
const COMMANDS: [(&str, &str); 2] = [
    ("list_containers", "`hotcell ps` lists the containers"),
    (
        "list_execs",
        "`hotcell logs CONTAINER` shows the newest command of a container",
    ),
];

/// Names of tools and arguments, which mean nothing on the command line.
const TOOL_WORDS: [&str; 7] = [
    "exec_", "fs_", "list_", "spawn", "wait_s", "image`", "call it",
];

/// Translates a tool's hint for the command line; `None` if only a caller of tools could follow it.
fn for_people(hint: &str) -> Option<&str> {
    if let Some((_, command)) = COMMANDS.iter().find(|(tool, _)| hint.contains(tool)) {
        return Some(command);
    }
    let is_for_tools = TOOL_WORDS.iter().any(|word| hint.contains(word));
    (!is_for_tools && !hint.is_empty()).then_some(hint)
}

pub(super) fn explain(error: &std::io::Error, directory: &Path) -> anyhow::Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return anyhow!(
            "the server of {} belongs to another user",
            directory.display()
        );
    }
    anyhow!(
        "no server runs on {}; start one with `hotcell serve`, or name its --state-dir",
        directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(hint: &str) -> String {
        let refused = ToolFailure {
            code: "not_found".to_owned(),
            message: "there is no container x".to_owned(),
            hint: hint.to_owned(),
        };
        refused.to_string()
    }

    #[test]
    fn an_error_names_commands_and_not_tools() {
        assert_eq!(
            said("call list_containers to see what there is, or spawn to make one"),
            "there is no container x; `hotcell ps` lists the containers"
        );
        assert_eq!(
            said("exec_poll with exec_id=e_1 reads its output"),
            "there is no container x"
        );
        assert_eq!(
            said("wait a moment and call again"),
            "there is no container x; wait a moment and call again"
        );
    }
}
