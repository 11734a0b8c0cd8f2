//! `sandbox_list_files`: lists a directory of a session.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Answer, Hints, Tool, ToolError, arguments, fs_list};
use crate::call::Call;
use crate::{Server, Toolset};

pub(super) struct SandboxListFiles;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// A directory
    #[serde(default = "fs_list::workspace")]
    path: String,
    /// `next_cursor` of the page before
    cursor: Option<String>,
    /// As in `execute_code`
    session: Option<String>,
}

impl Tool for SandboxListFiles {
    const NAME: &'static str = "sandbox_list_files";
    const DESCRIPTION: &'static str = "List a directory of a session of execute_code.";
    const HINTS: Hints = Hints::READS;
    const SET: Toolset = Toolset::Code;
    type Params = Params;
    type Output = fs_list::Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let name = arguments::session(params.session.as_deref())?;
        let session = server.service().session(&call.caller, &name).await?;
        let container = session.container.to_string();
        let list = fs_list::Params::of_directory(container, params.path, params.cursor);
        fs_list::FsList::run(server, list, call).await
    }
}
