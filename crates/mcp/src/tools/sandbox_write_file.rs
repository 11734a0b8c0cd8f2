//! `sandbox_write_file`: writes a file of a session.

use schemars::JsonSchema;
use serde::Deserialize;

use hotcell_service::Progress;

use super::arguments::Encoding;
use super::{Answer, Hints, Tool, ToolError, arguments, fs_write};
use crate::call::Call;
use crate::{Server, Toolset};

pub(super) struct SandboxWriteFile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Below /workspace
    path: String,
    /// At most 4 MiB
    content: String,
    /// Of content
    #[serde(default)]
    encoding: Encoding,
    /// As in `execute_code`
    session: Option<String>,
}

impl Tool for SandboxWriteFile {
    const NAME: &'static str = "sandbox_write_file";
    const DESCRIPTION: &'static str =
        "Write a whole file for execute_code atomically, with missing directories.";
    const HINTS: Hints = Hints::DESTROYS;
    const SET: Toolset = Toolset::Code;
    type Params = Params;
    type Output = fs_write::Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let name = arguments::session(params.session.as_deref())?;
        let (progress, updates) = Progress::channel();
        let what = || match &*updates.borrow() {
            Some(pulling) => pulling.to_string(),
            None => "making the session".to_owned(),
        };
        let service = server.service();
        let opening = service.open_session(&call.caller, &name, progress);
        let session = call.attend_telling(what, opening).await??;
        let container = session.container.to_string();
        let write =
            fs_write::Params::whole(container, params.path, params.content, params.encoding);
        fs_write::FsWrite::run(server, write, call).await
    }
}
