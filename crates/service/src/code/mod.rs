//! Runs snippets in sessions.
//!
//! A session is a container with a name. It is created on first use, keeps its files from one
//! snippet to the next, and ends when it has been idle for a while. Each snippet is an exec like
//! any other; its source file exists while it runs.

mod artifacts;
mod cut;
mod languages;
mod notebook;
mod output;
mod packages;
mod python;
mod run;
mod script;
mod session;
mod snippet;

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{ContainerId, ExecEnd, ExecId, Language, Name, Package, Principal};
use tokio::sync::watch;

pub use self::artifacts::Artifacts;
pub use self::cut::CutText;
pub(crate) use self::languages::Languages;
pub use self::output::CodeOutput;
pub use self::script::{ScriptHost, ScriptRequest, ScriptRun, ScriptStream};
pub use self::snippet::{SNIPPET_BYTES_MAX, Snippet};
use crate::exec::CellValues;
use crate::file::FilePath;
use crate::{Abandonment, EgressReport, Progress};

/// A request to run a snippet in a session.
#[derive(Debug, Clone)]
pub struct CodeRequest {
    /// The language of the source.
    pub language: &'static Language,
    /// The source code.
    pub source: Bytes,
    /// The name of the session.
    pub session: Name,
    /// Files to write before the snippet runs, all of them or none.
    pub files: Vec<CodeFile>,
    /// The arguments of the program.
    pub arguments: Vec<String>,
    /// Text for standard input; `None` means empty.
    pub stdin: Option<String>,
    /// How long it may run; `None` means the configured default.
    pub timeout: Option<Duration>,
    /// Use the plain interpreter even if a warm one is ready.
    pub is_cold: bool,
    /// Run it as a notebook cell, in the interpreter that the session keeps.
    pub stateful: bool,
    /// End that interpreter before the snippet runs.
    pub restart: bool,
    /// Packages to install into the session first.
    pub packages: Vec<Package>,
    /// Told what is being done before the snippet runs, if not an image pull; empty: nothing.
    pub step: watch::Sender<String>,
    /// Receives the progress of the image pull.
    pub progress: Progress,
    /// Whether the caller still waits. An abandoned snippet is cancelled; its session stays.
    pub abandonment: Abandonment,
}

/// A file to write before a snippet runs.
#[derive(Debug, Clone)]
pub struct CodeFile {
    /// The path in the container.
    pub path: FilePath,
    /// The content.
    pub data: Bytes,
}

/// A session, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// The name that the caller chose.
    pub name: Name,
    /// The container that the session is.
    pub container: ContainerId,
    /// Whether this call created it.
    pub is_new: bool,
    /// Whether an earlier session of this name has ended, so that its files are gone.
    pub had_ended: bool,
}

/// The result of a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRun {
    /// The exec that ran it.
    pub exec: ExecId,
    /// The session that it ran in.
    pub session: SessionView,
    /// How the exec ended.
    pub end: ExecEnd,
    /// Whose the exec is.
    pub owner: Principal,
    /// The files that it wrote to `/workspace/artifacts`.
    pub artifacts: Artifacts,
    /// What the session's egress did while it ran, if there is something to tell.
    pub egress: Option<EgressReport>,
    /// The values that a notebook cell reported.
    pub notebook: Option<CellValues>,
}

/// The session of a caller who names none.
pub fn default_session() -> Name {
    Name::parse("default").expect("it is a short text")
}
