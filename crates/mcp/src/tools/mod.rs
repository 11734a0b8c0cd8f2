//! The tools. A new one is a file here and a line in [`ENTRIES`].
//!
//! A tool that fails returns a result marked as error, for invalid input, too, so that the model
//! can correct itself.

mod answer;
mod arguments;
mod artifacts;
mod attach;
mod cell_view;
mod check;
mod code_view;
mod container_view;
mod egress_view;
mod error;
mod exec_cancel;
mod exec_input;
mod exec_poll;
mod exec_start;
mod exec_text;
mod exec_view;
mod execute_code;
mod file_view;
mod fs_batch;
mod fs_delete;
mod fs_export;
mod fs_import;
mod fs_list;
mod fs_read;
mod fs_stat;
mod fs_write;
mod garbage_collect;
mod kill;
mod list_containers;
mod list_execs;
mod metrics;
mod paging;
mod polling;
mod reconcile;
mod run_python;
mod run_view;
mod sandbox_list_files;
mod sandbox_read_file;
mod sandbox_write_file;
mod schema;
mod snippet;
mod spawn;
mod system_status;
mod toon;

use std::pin::Pin;

use hotcell_codemode::CodeMode;
use hotcell_domain::Caller;
use hotcell_service::Action;
use rmcp::model::{CallToolResult, JsonObject, Tool as ToolDescription, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

pub(crate) use answer::Answer;
pub(crate) use arguments::{container_ref, exec_id, file_path};
pub(crate) use container_view::stats;
pub(crate) use egress_view::profiles;
pub use error::{Code, ToolError};
pub(crate) use exec_view::exec_answer;
pub use file_view::workspace_path;

use crate::call::Call;
use crate::{Server, Toolset, Toolsets};

/// A tool that a model can call.
pub(crate) trait Tool: 'static {
    /// The name in the protocol.
    const NAME: &'static str;
    /// What it does, when to use it and what it returns: read by a model.
    const DESCRIPTION: &'static str;
    /// The annotations for clients.
    const HINTS: Hints;
    /// The group of tools that it belongs to.
    const SET: Toolset = Toolset::Workspace;
    /// Its arguments; the input schema is derived from this type.
    type Params: DeserializeOwned + JsonSchema + Send;
    /// Its structured content; the output schema is derived from this type.
    type Output: JsonSchema;
    /// Whether it may answer with a picture. Then it declares no output schema, because an answer
    /// with a picture has no structured content.
    const SHOWS_PICTURES: bool = false;

    /// Executes the tool.
    fn run(
        server: &Server,
        params: Self::Params,
        call: &Call,
    ) -> impl Future<Output = Result<Answer, ToolError>> + Send;
}

/// Annotations that tell a client what a tool may do.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are four questions, each with a yes or no"
)]
pub(crate) struct Hints {
    is_read_only: bool,
    is_destructive: bool,
    is_idempotent: bool,
    is_open_world: bool,
}

impl Hints {
    /// Changes nothing.
    const READS: Self = Self {
        is_read_only: true,
        is_destructive: false,
        is_idempotent: true,
        is_open_world: false,
    };
    /// Adds something, again on each call.
    const ADDS: Self = Self {
        is_read_only: false,
        is_idempotent: false,
        ..Self::READS
    };
    /// Sets something; repeating the call changes nothing.
    const SETS: Self = Self {
        is_read_only: false,
        ..Self::READS
    };
    /// May remove or replace something.
    const DESTROYS: Self = Self {
        is_destructive: true,
        is_idempotent: false,
        ..Self::SETS
    };
    /// Like `DESTROYS`, and it may act beyond the containers.
    const DESTROYS_ELSEWHERE: Self = Self {
        is_open_world: true,
        ..Self::DESTROYS
    };
    /// May remove or replace something; repeating the call changes nothing.
    const DESTROYS_ONCE: Self = Self {
        is_destructive: true,
        ..Self::SETS
    };
}

type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, ToolError>> + Send + 'a>>;

/// A tool with its types erased.
struct ToolEntry {
    set: Toolset,
    is_read_only: bool,
    listed: ToolDescription,
    arguments: JsonObject,
    run: for<'a> fn(&'a Server, JsonObject, &'a Call) -> ToolFuture<'a>,
}

/// The enabled tools, built once.
pub(crate) struct ToolTable(Vec<ToolEntry>);

/// All tools, in the order in which a model sees them.
const ENTRIES: [fn() -> ToolEntry; 26] = [
    entry::<execute_code::ExecuteCode>,
    entry::<sandbox_read_file::SandboxReadFile>,
    entry::<sandbox_write_file::SandboxWriteFile>,
    entry::<sandbox_list_files::SandboxListFiles>,
    entry::<run_python::RunPython>,
    entry::<spawn::Spawn>,
    entry::<attach::Attach>,
    entry::<list_containers::ListContainers>,
    entry::<kill::Kill>,
    entry::<exec_start::ExecStart>,
    entry::<exec_poll::ExecPoll>,
    entry::<exec_input::ExecInput>,
    entry::<exec_cancel::ExecCancel>,
    entry::<list_execs::ListExecs>,
    entry::<fs_read::FsRead>,
    entry::<fs_write::FsWrite>,
    entry::<fs_delete::FsDelete>,
    entry::<fs_stat::FsStat>,
    entry::<fs_list::FsList>,
    entry::<fs_batch::FsBatch>,
    entry::<fs_import::FsImport>,
    entry::<fs_export::FsExport>,
    entry::<system_status::SystemStatus>,
    entry::<metrics::Metrics>,
    entry::<reconcile::Reconcile>,
    entry::<garbage_collect::GarbageCollect>,
];

/// Whether a group has any tools.
pub(crate) fn has_any(set: Toolset) -> bool {
    ENTRIES.iter().any(|entry| entry().set == set)
}

impl ToolTable {
    /// The tools of the enabled groups.
    pub(crate) fn new(toolsets: Toolsets) -> Self {
        let entries = ENTRIES.iter().map(|entry| entry());
        Self(entries.filter(|entry| toolsets.has(entry.set)).collect())
    }

    /// The tools that a caller can see.
    pub(crate) fn list(&self, is_admin: bool) -> Vec<ToolDescription> {
        let seen = self.0.iter().filter(|entry| entry.is_for(is_admin));
        seen.map(|entry| entry.listed.clone()).collect()
    }

    /// Like [`ToolTable::list`]; the tool that runs scripts names the servers that they can call.
    pub(crate) fn list_for(&self, codemode: &CodeMode, caller: &Caller) -> Vec<ToolDescription> {
        let mut tools = self.list(caller.is_admin);
        let name = <run_python::RunPython as Tool>::NAME;
        if let Some(tool) = tools.iter_mut().find(|tool| tool.name == name) {
            let servers = codemode.servers(caller.principal.as_str()).list();
            tool.description = Some(hotcell_codemode::description(&servers).into());
        }
        tools
    }

    /// A tool's definition, which is not secret: admin tools are found for all callers.
    pub(crate) fn find(&self, name: &str) -> Option<ToolDescription> {
        let mut entries = self.0.iter();
        let entry = entries.find(|entry| entry.listed.name == name)?;
        Some(entry.listed.clone())
    }

    pub(crate) fn is_read_only(&self, name: &str) -> bool {
        let mut entries = self.0.iter();
        entries.any(|entry| entry.listed.name == name && entry.is_read_only)
    }

    /// Calls a tool; `None` if there is none of that name. An admin tool is denied to other
    /// callers, with a hint: its existence is not secret.
    pub(crate) async fn call(
        &self,
        server: &Server,
        name: &str,
        arguments: JsonObject,
        call: &Call,
    ) -> Option<Result<Answer, ToolError>> {
        let entry = self.0.iter().find(|entry| entry.listed.name == name)?;
        if !entry.is_for(call.caller.is_admin) {
            if let Some(action) = Action::of_tool(name) {
                server.service().deny(&call.caller, action).await;
            }
            return Some(Err(ToolError::admin_only(name)));
        }
        let span = tracing::info_span!("tool", name = %entry.listed.name);
        Some(entry.call(server, arguments, call).instrument(span).await)
    }
}

impl ToolEntry {
    fn is_for(&self, is_admin: bool) -> bool {
        is_admin || self.set != Toolset::Admin
    }

    async fn call(
        &self,
        server: &Server,
        mut arguments: JsonObject,
        call: &Call,
    ) -> Result<Answer, ToolError> {
        check::check(&self.arguments, &mut arguments)?;
        let outcome = (self.run)(server, arguments, call).await;
        let name = &self.listed.name;
        let is_about_files = name.starts_with("fs_") || name.starts_with("sandbox_");
        outcome.map_err(|error| {
            if is_about_files {
                error.about_files()
            } else {
                error
            }
        })
    }
}

fn entry<T: Tool>() -> ToolEntry {
    let hints = T::HINTS;
    let annotations = ToolAnnotations::new()
        .read_only(hints.is_read_only)
        .destructive(hints.is_destructive)
        .idempotent(hints.is_idempotent)
        .open_world(hints.is_open_world);
    let arguments = schema::of::<T::Params>();
    let mut listed = ToolDescription::new(T::NAME, T::DESCRIPTION, schema::shown_input(&arguments))
        .with_annotations(annotations);
    if !T::SHOWS_PICTURES {
        listed = listed.with_raw_output_schema(schema::shown_output::<T::Output>().into());
    }
    ToolEntry {
        set: T::SET,
        is_read_only: hints.is_read_only,
        listed,
        arguments,
        run: run::<T>,
    }
}

fn run<'a, T: Tool>(server: &'a Server, arguments: JsonObject, call: &'a Call) -> ToolFuture<'a> {
    match serde_json::from_value(arguments.into()) {
        Ok(params) => Box::pin(T::run(server, params, call)),
        Err(error) => Box::pin(std::future::ready(Err(ToolError::arguments(&error)))),
    }
}

/// Converts a tool's outcome into the protocol's result.
pub(crate) fn result(outcome: Result<Answer, ToolError>) -> CallToolResult {
    match outcome {
        Ok(answer) => answer.into(),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
