//! The port to the user's other servers, kept by the crate `upstream`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hotcell_upstream::{
    DefaultAction, Definitions, Health, PinState, ProgressUpdate, ServerName, UpstreamError,
    Upstreams, Visible,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::ports::{CallError, Pin, ServerSummary, Servers, ToolCall, ToolDefinition};
use crate::{Decision, Directory, Failure};

/// Progress updates of one call that wait to be handed on.
const PROGRESS_MAX: usize = 16;

impl Directory for Upstreams {
    fn visible_to(&self, principal: &str) -> Arc<dyn Servers> {
        Arc::new(Seen {
            visible: Self::visible_to(self, principal),
            converted: Mutex::default(),
        })
    }
}

/// What one principal sees.
struct Seen {
    visible: Visible,
    /// The definitions that were asked for last, as scripts see them, by server. A server may have
    /// thousands of tools, and each call asks for them.
    converted: Mutex<HashMap<ServerName, Converted>>,
}

/// Definitions of the catalogue, and what they were turned into.
type Converted = (Arc<Definitions>, Arc<[ToolDefinition]>);

impl Seen {
    fn converted(&self, server: &ServerName, known: Arc<Definitions>) -> Arc<[ToolDefinition]> {
        let mut all = self
            .converted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((from, converted)) = all.get(server)
            && Arc::ptr_eq(from, &known)
        {
            return Arc::clone(converted);
        }
        let default = self.visible.default_action(server);
        let converted = definitions(&known, default.map(decision));
        all.insert(server.clone(), (known, Arc::clone(&converted)));
        converted
    }

    fn name(&self, server: &str) -> Result<ServerName, Failure> {
        self.visible.find(server).ok_or_else(|| {
            let shown: String = server.chars().take(64).collect();
            Failure::not_found(format!("there is no server `{shown}`"))
        })
    }
}

#[async_trait]
impl Servers for Seen {
    fn list(&self) -> Vec<ServerSummary> {
        let one = |server: hotcell_upstream::ServerSummary| ServerSummary {
            name: server.name.as_str().to_owned(),
            alias: server.alias.to_string(),
            description: server.summary.unwrap_or_default(),
            tools: server.tools,
            must_be_named: server.source.is_discovered,
            health: match server.health {
                Health::Idle => "idle",
                Health::Starting => "starting",
                Health::Running => "running",
                Health::Failing { .. } => "failing",
            }
            .to_owned(),
        };
        self.visible.servers().into_iter().map(one).collect()
    }

    fn known(&self, server: &str) -> Option<Arc<[ToolDefinition]>> {
        let server = self.visible.find(server)?;
        let known = self.visible.known(&server)?;
        Some(self.converted(&server, known))
    }

    async fn definitions(&self, server: &str) -> Result<Arc<[ToolDefinition]>, Failure> {
        let server = self.name(server)?;
        let known = self.visible.definitions(&server).await;
        let known = known.map_err(|error| failure(&error))?;
        Ok(self.converted(&server, known))
    }

    async fn call(&self, call: ToolCall) -> Result<Value, CallError> {
        let not_sent = |failure| CallError {
            failure,
            is_outcome_unknown: false,
        };
        let server = self.name(&call.server).map_err(not_sent)?;
        let arguments = raw(&call.arguments).map_err(not_sent)?;
        if self.visible.pin(&server, &call.tool) == Some(PinState::New) {
            // What is used for the first time is what later definitions are compared with.
            let _ = self.visible.approve(&server, Some(&call.tool));
        }
        let progress = call.progress.map(handed_on);
        let called = self.visible.call_tool(hotcell_upstream::ToolCall {
            server,
            tool: call.tool,
            arguments,
            timeout: call.timeout,
            progress,
        });
        match called.await {
            Ok(result) => serde_json::to_value(result).map_err(|_| CallError {
                failure: Failure::new("internal", "the result cannot be shown"),
                is_outcome_unknown: true,
            }),
            Err(error) => Err(CallError {
                is_outcome_unknown: !error.was_not_sent()
                    && !matches!(error, UpstreamError::Server { .. }),
                failure: failure(&error),
            }),
        }
    }

    async fn resources(&self, server: &str) -> Result<Value, Failure> {
        told(self.visible.list_resources(&self.name(server)?).await)
    }

    async fn read_resource(&self, server: &str, uri: &str) -> Result<Value, Failure> {
        told(self.visible.read_resource(&self.name(server)?, uri).await)
    }

    async fn prompts(&self, server: &str) -> Result<Value, Failure> {
        told(self.visible.list_prompts(&self.name(server)?).await)
    }

    async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, Failure> {
        let (server, arguments) = (self.name(server)?, raw(&arguments)?);
        told(
            self.visible
                .get_prompt(&server, name, Some(&arguments))
                .await,
        )
    }

    fn search(&self, query: &str, servers: Option<&[String]>, limit: usize) -> Vec<Value> {
        let found = |name: &String| self.visible.find(name);
        let among = servers.map(|names| names.iter().filter_map(found).collect::<Vec<_>>());
        let hits = self.visible.search(query, among.as_deref(), limit);
        let one = |hit: &hotcell_upstream::Hit| {
            let tool = hit.tool();
            let properties = tool.input_schema.get("properties");
            let names = properties.and_then(Value::as_object);
            let names: Vec<&String> = names.into_iter().flat_map(Map::keys).collect();
            json!({
                "server": hit.server.as_str(),
                "tool": tool.name,
                "description": tool.description,
                "arguments": names,
                "score": hit.score,
            })
        };
        hits.iter().map(one).collect()
    }

    fn pin(&self, server: &str, tool: &str) -> Pin {
        let server = self.visible.find(server);
        match server.and_then(|server| self.visible.pin(&server, tool)) {
            Some(PinState::Same) => Pin::Same,
            Some(PinState::Changed { difference }) => Pin::Changed { difference },
            Some(PinState::New) | None => Pin::New,
        }
    }
}

fn decision(default: DefaultAction) -> Decision {
    match default {
        DefaultAction::Allow => Decision::Allow,
        DefaultAction::Ask => Decision::Ask,
        DefaultAction::Deny => Decision::Deny,
    }
}

fn definitions(known: &Definitions, default: Option<Decision>) -> Arc<[ToolDefinition]> {
    let one = |tool: &hotcell_upstream::ToolDefinition| ToolDefinition {
        name: tool.name.clone(),
        json: json!({
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.input_schema,
            "outputSchema": tool.output_schema,
        }),
        is_read_only: tool.annotations.read_only_hint == Some(true),
        is_destructive: tool.annotations.destructive_hint,
        is_idempotent: tool.annotations.idempotent_hint == Some(true),
        default,
    };
    known.tools.iter().map(one).collect()
}

fn raw(arguments: &Map<String, Value>) -> Result<Box<RawValue>, Failure> {
    serde_json::value::to_raw_value(arguments)
        .map_err(|_| Failure::invalid("the arguments are not JSON"))
}

fn told<T: serde::Serialize>(answer: Result<T, UpstreamError>) -> Result<Value, Failure> {
    let answer = answer.map_err(|error| failure(&error))?;
    serde_json::to_value(answer).map_err(|_| Failure::new("internal", "it cannot be shown"))
}

/// Turns updates into JSON on their way.
fn handed_on(progress: mpsc::Sender<Value>) -> mpsc::Sender<ProgressUpdate> {
    let (sender, mut updates) = mpsc::channel::<ProgressUpdate>(PROGRESS_MAX);
    tokio::spawn(async move {
        while let Some(update) = updates.recv().await {
            let update = json!({
                "progress": update.progress,
                "total": update.total,
                "message": update.message,
            });
            if progress.send(update).await.is_err() {
                return;
            }
        }
    });
    sender
}

fn failure(error: &UpstreamError) -> Failure {
    let code = match error {
        UpstreamError::Unknown { .. } | UpstreamError::UnknownTool { .. } => "not_found",
        UpstreamError::Timeout { .. } => "deadline_exceeded",
        UpstreamError::TooLarge { .. } | UpstreamError::Busy { .. } => "resource_exhausted",
        UpstreamError::Server { .. } => "server_error",
        UpstreamError::Refused { .. } => "denied",
        UpstreamError::Start { .. }
        | UpstreamError::BackOff { .. }
        | UpstreamError::Crashed { .. }
        | UpstreamError::Protocol { .. }
        | _ => "unavailable",
    };
    Failure::new(code, error.to_string())
}
