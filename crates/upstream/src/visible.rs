//! The servers that one principal may use. There is no way to a server but through this.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::catalogue::{Catalogue, Hit, PinState};
use crate::connection::Request;
use crate::definition::{Definitions, ToolDefinition};
use crate::error::UpstreamError;
use crate::health::ServerSummary;
use crate::listing;
use crate::name::ServerName;
use crate::result::{Prompt, PromptMessage, Resource, ResourceBody, ToolResult};
use crate::rpc::{Params, ProgressUpdate};
use crate::server::Server;
use crate::settings::DefaultAction;
use crate::text::{on_one_line, quoted};

/// A call of a tool.
#[derive(Debug)]
pub struct ToolCall {
    /// Whose tool.
    pub server: ServerName,
    /// Which.
    pub tool: String,
    /// A JSON object.
    pub arguments: Box<RawValue>,
    /// How long it may take, the server's start not included.
    pub timeout: Duration,
    /// Who wants to know how far it is; one who does not keep up misses some.
    pub progress: Option<mpsc::Sender<ProgressUpdate>>,
}

/// What one principal can see. A cheap copy of how it was when it was made.
#[derive(Clone)]
pub struct Visible {
    pub(crate) servers: Arc<HashMap<ServerName, Arc<Server>>>,
    pub(crate) order: Arc<Vec<ServerName>>,
    pub(crate) catalogue: Arc<Catalogue>,
}

#[derive(Deserialize)]
struct Contents {
    contents: Vec<ResourceBody>,
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<PromptMessage>,
}

impl Visible {
    /// All of them, in the order of their sources. Starts none.
    pub fn servers(&self) -> Vec<ServerSummary> {
        self.order
            .iter()
            .filter_map(|name| self.servers.get(name))
            .map(|server| self.summary(server))
            .collect()
    }

    fn summary(&self, server: &Server) -> ServerSummary {
        let known = self.catalogue.known(server.name());
        let told = known.as_ref().and_then(|known| known.title.clone());
        ServerSummary {
            name: server.name().clone(),
            alias: Arc::clone(&server.alias),
            transport: server.entry.launch.kind(),
            source: server.entry.source.clone(),
            health: server.health(),
            protocol: server.protocol(),
            tools: known.as_ref().map(|known| known.tools.len()),
            skipped: known.as_ref().map_or(0, |known| known.skipped_count),
            summary: server.entry.summary.clone().or(told),
        }
    }

    /// What its entry says of tools that say nothing of their effects.
    pub fn default_action(&self, server: &ServerName) -> Option<DefaultAction> {
        self.servers.get(server)?.entry.default
    }

    /// The server of this name or alias.
    pub fn find(&self, name_or_alias: &str) -> Option<ServerName> {
        if let Some((name, _)) = self.servers.get_key_value(name_or_alias) {
            return Some(name.clone());
        }
        let by_alias = self
            .servers
            .values()
            .find(|server| &*server.alias == name_or_alias);
        by_alias.map(|server| server.name().clone())
    }

    /// What is known of a server, from the catalogue. Starts nothing.
    pub fn known(&self, server: &ServerName) -> Option<Arc<Definitions>> {
        self.servers
            .get(server)
            .and_then(|server| self.catalogue.known(server.name()))
    }

    /// What is known of a server; it is started and listed if that is nothing.
    pub async fn definitions(
        &self,
        server: &ServerName,
    ) -> Result<Arc<Definitions>, UpstreamError> {
        self.server(server)?.definitions().await
    }

    /// Starts a server if it does not run, and lists it anew.
    pub async fn refresh(&self, server: &ServerName) -> Result<Arc<Definitions>, UpstreamError> {
        self.server(server)?.refresh().await
    }

    /// Calls a tool, and starts its server if it does not run. Dropped half-way, or after its timeout,
    /// the server is told to cancel it.
    pub async fn call_tool(&self, call: ToolCall) -> Result<ToolResult, UpstreamError> {
        let server = self.server(&call.server)?;
        let params = Params {
            name: Some(&call.tool),
            arguments: Some(&call.arguments),
            ..Params::default()
        };
        let request = Request {
            method: "tools/call",
            params,
            progress: call.progress,
            timeout: call.timeout,
        };
        parsed(server, &server.request(request).await?, "a call")
    }

    /// The resources of a server.
    pub async fn list_resources(
        &self,
        server: &ServerName,
    ) -> Result<Vec<Resource>, UpstreamError> {
        self.list(server, "resources/list").await
    }

    /// Reads a resource.
    pub async fn read_resource(
        &self,
        server: &ServerName,
        uri: &str,
    ) -> Result<Vec<ResourceBody>, UpstreamError> {
        let server = self.server(server)?;
        let params = Params {
            uri: Some(uri),
            ..Params::default()
        };
        let answer = server
            .request(request(server, "resources/read", params))
            .await?;
        parsed::<Contents>(server, &answer, "resources/read").map(|answer| answer.contents)
    }

    /// The prompts of a server.
    pub async fn list_prompts(&self, server: &ServerName) -> Result<Vec<Prompt>, UpstreamError> {
        self.list(server, "prompts/list").await
    }

    /// A prompt with its arguments filled in: an object of strings.
    pub async fn get_prompt(
        &self,
        server: &ServerName,
        name: &str,
        arguments: Option<&RawValue>,
    ) -> Result<Vec<PromptMessage>, UpstreamError> {
        let server = self.server(server)?;
        let params = Params {
            name: Some(name),
            arguments,
            ..Params::default()
        };
        let answer = server
            .request(request(server, "prompts/get", params))
            .await?;
        parsed::<Messages>(server, &answer, "prompts/get").map(|answer| answer.messages)
    }

    async fn list<T: for<'de> Deserialize<'de>>(
        &self,
        server: &ServerName,
        method: &'static str,
    ) -> Result<Vec<T>, UpstreamError> {
        let server = self.server(server)?;
        let connection = server.connection().await?;
        let items = listing::all(&connection, method, server.entry.timeouts.call).await?;
        items
            .iter()
            .map(|item| parsed(server, item, method))
            .collect()
    }

    /// The best matches among the tools that are known, of these servers or of all. Starts nothing.
    pub fn search(&self, query: &str, servers: Option<&[ServerName]>, limit: usize) -> Vec<Hit> {
        let is_asked = |name: &&ServerName| servers.is_none_or(|servers| servers.contains(name));
        let servers: Vec<_> = self.order.iter().filter(is_asked).cloned().collect();
        self.catalogue.search(query, &servers, limit)
    }

    /// How a tool compares with what was approved; none if it is not known.
    pub fn pin(&self, server: &ServerName, tool: &str) -> Option<PinState> {
        let known = self.known(server)?;
        let tool = known.tools.iter().find(|known| known.name == tool)?;
        Some(self.catalogue.pin(server, tool))
    }

    /// Approves a tool, or all of a server, as they are known now. Returns how many that changed.
    /// Writes a small file.
    pub fn approve(&self, server: &ServerName, tool: Option<&str>) -> Result<usize, UpstreamError> {
        let name = self.server(server)?.name().clone();
        let known = self.known(server).unwrap_or_default();
        let is_meant = |known: &&ToolDefinition| tool.is_none_or(|tool| tool == known.name);
        let tools: Vec<_> = known.tools.iter().filter(is_meant).cloned().collect();
        if let (Some(tool), true) = (tool, tools.is_empty()) {
            return Err(UpstreamError::UnknownTool {
                server: name,
                tool: quoted(tool, 128).into_owned(),
            });
        }
        self.catalogue.approve(server, &tools).map_err(|error| {
            tracing::warn!(upstream = %name, %error, "could not store what was approved");
            UpstreamError::Start {
                server: name,
                reason: "the approval could not be stored".to_owned(),
            }
        })
    }

    fn server(&self, name: &ServerName) -> Result<&Arc<Server>, UpstreamError> {
        let unknown = || UpstreamError::Unknown {
            server: on_one_line(name.as_str(), 128),
        };
        self.servers.get(name).ok_or_else(unknown)
    }
}

fn request<'a>(server: &Server, method: &'static str, params: Params<'a>) -> Request<'a> {
    Request {
        method,
        params,
        progress: None,
        timeout: server.entry.timeouts.call,
    }
}

fn parsed<T: for<'de> Deserialize<'de>>(
    server: &Server,
    answer: &RawValue,
    what: &str,
) -> Result<T, UpstreamError> {
    serde_json::from_str(answer.get()).map_err(|_| UpstreamError::Protocol {
        server: server.name().clone(),
        reason: format!("its answer to {what} is malformed"),
    })
}
