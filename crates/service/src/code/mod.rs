//! Running snippets, in sessions.
//!
//! A session is a container of its owner's with a name. It is created on first use, keeps its
//! files from one snippet to the next, and ends when nobody has used it for a while. Each snippet
//! is an exec like any other, of a source file that is there for as long as it runs.

mod artifacts;
mod cut;
mod languages;
mod notebook;
mod output;
mod python;
mod run;
mod session;
mod snippet;

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{ContainerId, ExecEnd, ExecId, Language, Name};

pub use self::artifacts::Artifacts;
pub use self::cut::CutText;
pub(crate) use self::languages::Languages;
pub use self::output::CodeOutput;
pub use self::snippet::{SNIPPET_BYTES_MAX, Snippet};
use crate::exec::CellValues;
use crate::file::FilePath;
use crate::{Abandonment, Progress};

/// A snippet that somebody wants to run in a session.
#[derive(Debug, Clone)]
pub struct CodeRequest {
    /// What it is written in.
    pub language: &'static Language,
    /// What it says.
    pub source: Bytes,
    /// Where it runs.
    pub session: Name,
    /// Written before it runs, all of them or none.
    pub files: Vec<CodeFile>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it reads; nothing if there is none.
    pub stdin: Option<String>,
    /// How long it may run; `None`: as long as the operator says.
    pub timeout: Option<Duration>,
    /// Run it by the plain interpreter, even where a warmed one could.
    pub is_cold: bool,
    /// Run it in the interpreter that the session keeps, as a cell of a notebook.
    pub stateful: bool,
    /// End that interpreter first.
    pub restart: bool,
    /// Receives the progress of the image pull.
    pub progress: Progress,
    /// Whether somebody waits for it. A snippet that was abandoned is cancelled; a session stays.
    pub abandonment: Abandonment,
}

/// A file that a snippet needs.
#[derive(Debug, Clone)]
pub struct CodeFile {
    /// Where.
    pub path: FilePath,
    /// What.
    pub data: Bytes,
}

/// A session as whoever uses it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its name.
    pub name: Name,
    /// Its container.
    pub container: ContainerId,
    /// Whether this call made it.
    pub is_new: bool,
    /// Whether there was an earlier one of this name, whose files are gone.
    pub had_ended: bool,
}

/// A snippet that has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRun {
    /// The exec that it was.
    pub exec: ExecId,
    /// Where it ran.
    pub session: SessionView,
    /// How it ended.
    pub end: ExecEnd,
    /// What it put into `/workspace/artifacts`.
    pub artifacts: Artifacts,
    /// What a stateful one tells besides.
    pub notebook: Option<CellValues>,
}

/// The name of the session of a caller who names none.
pub fn default_session() -> Name {
    Name::parse("default").expect("it is a short text")
}
