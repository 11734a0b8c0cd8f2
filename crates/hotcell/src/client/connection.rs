//! A connection to the running server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use hotcell_mcp::transport::Socket;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ClientRequest, CustomRequest,
    Implementation,
};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::StateArgs;
use crate::state;

/// The running server. Clones share the connection.
#[derive(Clone)]
pub(super) struct Server {
    client: Arc<RunningService<RoleClient, ClientConfig>>,
}

impl Server {
    /// Connects to the server that has the state directory.
    pub(super) async fn connect(state: &StateArgs) -> Result<Self> {
        let directory = state::directory(state.state_dir.clone())?;
        let stream = Socket::connect(&state::socket(&directory))
            .await
            .map_err(|error| explain(&error, &directory))?;
        let client = config().serve(stream).await.context("greet the server")?;
        Ok(Self {
            client: Arc::new(client),
        })
    }

    /// Makes a request of ours, which is no tool.
    pub(super) async fn request<T: DeserializeOwned>(&self, method: &'static str) -> Result<T> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, None));
        let answer = self.client.send_request(request).await;
        let answer = answer.with_context(|| format!("ask the server for {method}"))?;
        let answer = serde_json::to_value(answer)?;
        serde_json::from_value(answer).with_context(|| format!("read the answer to {method}"))
    }

    /// Calls a tool and answers its structured content. The tool's own refusal becomes an
    /// error that reads as the server wrote it.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        arguments: Value,
    ) -> Result<T> {
        let Value::Object(arguments) = arguments else {
            bail!("arguments are an object");
        };
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
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

/// What a tool said when it did not do its work.
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

    /// Whether that is why a call failed.
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

/// Next steps that have a command of their own.
const COMMANDS: [(&str, &str); 2] = [
    ("list_containers", "`hotcell ps` lists the containers"),
    (
        "list_execs",
        "`hotcell logs CONTAINER` shows the newest command of a container",
    ),
];

/// Words of tools and their arguments, which mean nothing at a command line.
const TOOL_WORDS: [&str; 7] = [
    "exec_", "fs_", "list_", "spawn", "wait_s", "image`", "call it",
];

/// The next step of a tool's refusal, as somebody at a command line would take it. One that
/// only a caller of tools can take is left out.
fn for_people(hint: &str) -> Option<&str> {
    if let Some((_, command)) = COMMANDS.iter().find(|(tool, _)| hint.contains(tool)) {
        return Some(command);
    }
    let is_for_tools = TOOL_WORDS.iter().any(|word| hint.contains(word));
    (!is_for_tools && !hint.is_empty()).then_some(hint)
}

fn explain(error: &std::io::Error, directory: &Path) -> anyhow::Error {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
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
