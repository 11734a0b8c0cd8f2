//! What the operator decides, and what all runs share.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::ports::{CallError, Pin, ServerSummary, Servers, ToolCall, ToolDefinition};
use crate::{Budget, CallRate, Failure, Policy};

/// How an answer is rendered as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputMode {
    /// For people and models: output first, then a line about the run.
    #[default]
    Compact,
    /// Token-Oriented Object Notation of the structured content.
    Toon,
    /// Its JSON.
    Json,
}

impl OutputMode {
    /// Parses the name of a mode.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "compact" => Ok(Self::Compact),
            "toon" => Ok(Self::Toon),
            "json" => Ok(Self::Json),
            _ => Err("must be compact, toon or json".to_owned()),
        }
    }
}

/// What the operator decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Which calls are allowed.
    pub policy: Policy,
    /// Limits of a run.
    pub budget: Budget,
    /// How answers are rendered.
    pub output: OutputMode,
}

/// The user's other servers, by who may use them.
pub trait Directory: Send + Sync {
    /// Those that a principal may use.
    fn visible_to(&self, principal: &str) -> Arc<dyn Servers>;
}

/// Code mode of a server. Clones share it.
#[derive(Clone)]
pub struct CodeMode(Arc<Shared>);

struct Shared {
    directory: Arc<dyn Directory>,
    settings: RwLock<Arc<Settings>>,
    rate: Arc<CallRate>,
}

impl CodeMode {
    /// Code mode with these servers.
    pub fn new(directory: Arc<dyn Directory>, settings: Settings) -> Self {
        Self(Arc::new(Shared {
            directory,
            settings: RwLock::new(Arc::new(settings)),
            rate: Arc::default(),
        }))
    }

    /// What the operator has decided.
    pub fn settings(&self) -> Arc<Settings> {
        let settings = self.0.settings.read();
        Arc::clone(&settings.unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it; runs that have begun go on with the old settings.
    pub fn reload(&self, settings: Settings) {
        let mut current = self
            .0
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(settings);
    }

    /// The servers that a principal may use.
    pub fn servers(&self, principal: &str) -> Arc<dyn Servers> {
        self.0.directory.visible_to(principal)
    }

    /// The counter of all runs' calls.
    pub fn rate(&self) -> &Arc<CallRate> {
        &self.0.rate
    }
}

impl Default for CodeMode {
    /// Without servers.
    fn default() -> Self {
        Self::new(Arc::new(NoServers), Settings::default())
    }
}

impl std::fmt::Debug for CodeMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeMode").finish_non_exhaustive()
    }
}

/// Where nobody has configured a server.
struct NoServers;

impl Directory for NoServers {
    fn visible_to(&self, _: &str) -> Arc<dyn Servers> {
        Arc::new(Self)
    }
}

fn unknown(server: &str) -> Failure {
    let shown: String = server.chars().take(64).collect();
    Failure::not_found(format!("there is no server `{shown}`"))
}

#[async_trait]
impl Servers for NoServers {
    fn list(&self) -> Vec<ServerSummary> {
        Vec::new()
    }

    fn known(&self, _: &str) -> Option<Arc<[ToolDefinition]>> {
        None
    }

    async fn definitions(&self, server: &str) -> Result<Arc<[ToolDefinition]>, Failure> {
        Err(unknown(server))
    }

    async fn call(&self, call: ToolCall) -> Result<Value, CallError> {
        Err(CallError {
            failure: unknown(&call.server),
            is_outcome_unknown: false,
        })
    }

    async fn resources(&self, server: &str) -> Result<Value, Failure> {
        Err(unknown(server))
    }

    async fn read_resource(&self, server: &str, _: &str) -> Result<Value, Failure> {
        Err(unknown(server))
    }

    async fn prompts(&self, server: &str) -> Result<Value, Failure> {
        Err(unknown(server))
    }

    async fn prompt(&self, server: &str, _: &str, _: Map<String, Value>) -> Result<Value, Failure> {
        Err(unknown(server))
    }

    fn search(&self, _: &str, _: Option<&[String]>, _: usize) -> Vec<Value> {
        Vec::new()
    }

    fn pin(&self, _: &str, _: &str) -> Pin {
        Pin::New
    }
}
