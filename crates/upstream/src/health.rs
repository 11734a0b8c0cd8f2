//! How servers are, for those who look.

use std::sync::Arc;
use std::time::Duration;

use crate::name::ServerName;
use crate::settings::{Source, TransportKind};

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Not running: nobody has needed it, or not lately.
    Idle,
    /// On its way.
    Starting,
    /// Connected.
    Running,
    /// Its last start failed, or it crashed.
    Failing {
        /// What happened, in words fit for a model.
        reason: String,
        /// How often in a row.
        failures: u32,
        /// When it may be tried again; zero: with the next call.
        retry_in: Duration,
    },
}

impl Health {
    /// One word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Failing { .. } => "failing",
        }
    }
}

/// A configured server, as known without starting it.
#[derive(Debug, Clone)]
pub struct ServerSummary {
    /// Its name.
    pub name: ServerName,
    /// A Python identifier, unique among the configured.
    pub alias: Arc<str>,
    /// How it is reached.
    pub transport: TransportKind,
    /// Where its entry was found.
    pub source: Source,
    /// How it is.
    pub health: Health,
    /// The revision of MCP that is spoken, while it runs.
    pub protocol: Option<&'static str>,
    /// How many tools it has, if it was ever listed.
    pub tools: Option<usize>,
    /// How many definitions were unusable.
    pub skipped: usize,
    /// What the user or the server says about it: at most a line.
    pub summary: Option<String>,
}

/// Something that happened to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was started and has answered.
    Started,
    /// It was stopped because nobody used it, or because we stop.
    Stopped,
    /// It could not be started, or crashed.
    Failed {
        /// What happened.
        reason: String,
    },
    /// Its definitions are other than before.
    DefinitionsChanged,
    /// The set of servers is other than before.
    Reloaded,
}

/// Who wants to know. Called on the task that noticed: it must not block.
pub trait Observer: Send + Sync {
    /// Something happened to `server`; to all, if there is none.
    fn happened(&self, server: Option<&ServerName>, event: &Event);
}

/// Nobody.
#[derive(Debug, Clone, Copy)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn happened(&self, _: Option<&ServerName>, _: &Event) {}
}
