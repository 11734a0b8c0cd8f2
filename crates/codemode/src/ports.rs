//! What code mode needs of others, in its own words.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::RunId;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::{Decision, Failure};

/// A server as far as it is known without starting it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerSummary {
    /// As people configured it.
    pub name: String,
    /// As Python calls it: `mcp_<alias>`.
    pub alias: String,
    /// One line; untrusted.
    pub description: String,
    /// How many tools it has, if that is known.
    pub tools: Option<usize>,
    /// Whether scripts may use it only if their call names it.
    pub must_be_named: bool,
    /// A word: how it is.
    pub health: String,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolDefinition {
    /// Its name at the server.
    pub name: String,
    /// Name, description, schemas: what the script gets.
    pub json: Value,
    /// It says that it changes nothing.
    pub is_read_only: bool,
    /// What it says of destruction, if anything.
    pub is_destructive: Option<bool>,
    /// It says that twice is as once.
    pub is_idempotent: bool,
    /// What its server's entry decides for tools that say nothing.
    pub default: Option<Decision>,
}

/// A call that is allowed.
#[derive(Debug)]
pub struct ToolCall {
    /// The name of the server.
    pub server: String,
    /// The name of the tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// How long it may take.
    pub timeout: Duration,
    /// Receives progress, if somebody wants it.
    pub progress: Option<mpsc::Sender<Value>>,
}

/// Whether a definition is the one that was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// It was never seen before.
    New,
    /// It is.
    Same,
    /// It is not.
    Changed {
        /// What is different.
        difference: String,
    },
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// As the script sees it.
    pub failure: Failure,
    /// Whether the server may have done it.
    pub is_outcome_unknown: bool,
}

/// The user's other MCP servers, as one principal sees them.
#[async_trait]
pub trait Servers: Send + Sync {
    /// All of them. Starts none.
    fn list(&self) -> Vec<ServerSummary>;
    /// The tools of a server as far as they are known. Starts nothing.
    fn known(&self, server: &str) -> Option<Arc<[ToolDefinition]>>;
    /// The same; a server that was never seen is started.
    async fn definitions(&self, server: &str) -> Result<Arc<[ToolDefinition]>, Failure>;
    /// The result as MCP has it: `content`, `structuredContent`, `isError`. Dropping the future
    /// cancels the call.
    async fn call(&self, call: ToolCall) -> Result<Value, CallError>;
    /// A list of resources.
    async fn resources(&self, server: &str) -> Result<Value, Failure>;
    /// The contents of a resource, a list.
    async fn read_resource(&self, server: &str, uri: &str) -> Result<Value, Failure>;
    /// A list of prompts.
    async fn prompts(&self, server: &str) -> Result<Value, Failure>;
    /// A prompt, filled in.
    async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, Failure>;
    /// The tools that fit best, best first. Starts nothing.
    fn search(&self, query: &str, servers: Option<&[String]>, limit: usize) -> Vec<Value>;
    /// Whether a tool is what it was.
    fn pin(&self, server: &str, tool: &str) -> Pin;
}

/// A call that is about to be sent.
#[derive(Debug, Clone)]
pub struct CallStart {
    /// Its run.
    pub run: RunId,
    /// Its number within the run, from 1.
    pub number: u64,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// The names of its arguments.
    pub argument_names: Vec<String>,
    /// Equal for equal calls.
    pub digest: String,
    /// Of its arguments.
    pub bytes: usize,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// With a result; its JSON, if it is short enough to be kept.
    Answered {
        /// What the server answered.
        result: Option<String>,
        /// How long that is.
        bytes: usize,
    },
    /// Not done.
    Failed(Failure),
    /// Perhaps done.
    Unknown(Failure),
}

/// A call of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierCall {
    /// Equal for equal calls.
    pub digest: String,
    /// How it ended.
    pub outcome: EarlierOutcome,
}

/// How a call of an earlier run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlierOutcome {
    /// With this result.
    Answered(String),
    /// Nobody knows whether it was done, or what came of it.
    Unknown,
}

/// Where calls are written down, before they are sent and when they are answered.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Returns once the call is on record. On `Err` it must not be sent.
    async fn begin_call(&self, call: CallStart) -> Result<Box<dyn JournalledCall>, Failure>;
    /// Records a call that is not sent.
    async fn refuse_call(&self, call: CallStart, why: &Failure);
}

/// A call on record. Dropped, its outcome is unknown.
#[async_trait]
pub trait JournalledCall: Send {
    /// Records how it ended.
    async fn end(self: Box<Self>, end: &CallEnd);
}

/// Something that is remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryRow {
    /// Its name.
    pub key: String,
    /// JSON; empty in lists.
    pub value: String,
    /// JSON too.
    pub metadata: Option<String>,
    /// Grows with every save, from 1.
    pub version: u64,
    /// Of the value.
    pub bytes: u64,
    /// When it was first saved.
    pub created_unix_ms: u64,
    /// When it was last saved.
    pub updated_unix_ms: u64,
}

/// Something to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveMemory {
    /// Its name.
    pub key: String,
    /// JSON.
    pub value: String,
    /// JSON too.
    pub metadata: Option<String>,
    /// Only if it has this version; 0: only if there is none.
    pub if_version: Option<u64>,
}

/// What one principal remembers. `space` tells values (`memory`) from saved tools (`tool`).
#[async_trait]
pub trait Memory: Send + Sync {
    /// Saves; the new version. `conflict` if it has another version than asked for.
    async fn save(&self, space: &'static str, row: SaveMemory) -> Result<u64, Failure>;
    /// Loads.
    async fn load(&self, space: &'static str, key: &str) -> Result<Option<MemoryRow>, Failure>;
    /// Deletes; whether there was one.
    async fn delete(&self, space: &'static str, key: &str) -> Result<bool, Failure>;
    /// Lists by key.
    async fn list(&self, space: &'static str, prefix: &str) -> Result<Vec<MemoryRow>, Failure>;
}

/// A call that needs somebody's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// As JSON, cut.
    pub arguments: String,
    /// Why it is asked.
    pub reason: String,
}

/// What somebody said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Do it.
    Yes,
    /// Do not.
    No,
    /// There is nobody to ask.
    Nobody,
}

/// Somebody who decides.
#[async_trait]
pub trait Asker: Send + Sync {
    /// Waits for an answer.
    async fn ask(&self, question: Question) -> Asked;
}
