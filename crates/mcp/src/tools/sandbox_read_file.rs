//! `sandbox_read_file`: reads a file of a session.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Answer, Hints, Tool, ToolError, arguments, fs_read};
use crate::call::Call;
use crate::{Server, Toolset};

pub(super) struct SandboxReadFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Below /workspace
    path: String,
    /// As in `execute_code`
    session: Option<String>,
}

impl Tool for SandboxReadFile {
    const NAME: &'static str = "sandbox_read_file";
    const DESCRIPTION: &'static str =
        "Read a file of a session of execute_code, as fs_read does; a picture as an image.";
    const HINTS: Hints = Hints::READS;
    const SET: Toolset = Toolset::Code;
    const SHOWS_PICTURES: bool = true;
    type Params = Params;
    type Output = fs_read::Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let name = arguments::session(params.session.as_deref())?;
        let session = server.service().session(&call.caller, &name).await?;
        let container = session.container.to_string();
        let read = fs_read::Params::whole(container, params.path);
        fs_read::FsRead::run(server, read, call).await
    }
}
