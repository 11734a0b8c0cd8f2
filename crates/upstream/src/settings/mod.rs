//! What the user says about servers.

mod principals;
mod template;

use std::path::PathBuf;
use std::time::Duration;

pub use principals::Principals;
pub(crate) use template::{Environment, Redactor, Resolved, process_environment};
pub use template::{Template, TemplateError};

use crate::bounds::{CALL_TIMEOUT, IDLE_TIMEOUT, START_TIMEOUT};
use crate::name::ServerName;

/// All servers, in order of precedence: of two with one name the first is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The servers.
    pub servers: Vec<Entry>,
    /// What was wrong with the places where entries were looked for.
    pub findings: Vec<Finding>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: ServerName,
    /// Where this entry stands.
    pub source: Source,
    /// How it is reached.
    pub launch: Launch,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Who may use it.
    pub principals: Principals,
    /// What it is for, in a line.
    pub summary: Option<String>,
    /// What happens to calls of tools that say nothing of their effects; `None`: what happens to those
    /// of every server.
    pub default: Option<DefaultAction>,
}

/// What happens to calls of a server's tools that say nothing of their effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultAction {
    /// They are made.
    Allow,
    /// Somebody is asked.
    Ask,
    /// They are not made.
    Deny,
}

/// Where an entry was found: `hotcell.toml`, or the name of the program whose file it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// For example `hotcell.toml` or `Claude Code`.
    pub program: &'static str,
    /// Whether `--discover` found it, in a file that is not ours.
    pub is_discovered: bool,
    /// The file; for people, never for a model.
    pub file: Option<PathBuf>,
}

/// Something wrong with a source, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub source: Source,
    /// The entry, if it is about one; quoted.
    pub entry: Option<String>,
    /// What is wrong; never a value.
    pub message: String,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Start and handshake.
    pub start: Duration,
    /// A call, unless its caller says otherwise; also its upper bound if that is longer.
    pub call: Duration,
    /// Unused for so long, it is stopped.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: START_TIMEOUT,
            call: CALL_TIMEOUT,
            idle: IDLE_TIMEOUT,
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A program that speaks MCP on its standard streams.
    Stdio(Program),
    /// Streamable HTTP, of either generation.
    Http(Endpoint),
    /// HTTP with server-sent events, as it was before 2025-03-26.
    Sse(Endpoint),
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// A path, or a name that `PATH` leads to.
    pub command: Template,
    /// Its arguments.
    pub arguments: Vec<Template>,
    /// Its environment, besides a few variables of ours that hold no secrets.
    pub environment: Vec<(String, Template)>,
    /// Its working directory; ours, if none.
    pub directory: Option<PathBuf>,
}

/// A server on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `http` or `https`.
    pub url: Template,
    /// Headers of every request.
    pub headers: Vec<(String, Template)>,
}

/// The kind of [`Launch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// Standard streams.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP with server-sent events.
    Sse,
}

impl TransportKind {
    /// As it is written in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
        }
    }
}

impl Launch {
    /// Its kind.
    pub fn kind(&self) -> TransportKind {
        match self {
            Self::Stdio(_) => TransportKind::Stdio,
            Self::Http(_) => TransportKind::Http,
            Self::Sse(_) => TransportKind::Sse,
        }
    }
}
