//! `fs_delete`: removes a file or a directory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::if_match;
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct FsDelete;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// Below /workspace, which itself stays
    path: String,
    /// Also a directory that is not empty
    #[serde(default = "yes")]
    recursive: bool,
    /// Must be the file's
    if_match_etag: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    path: String,
    deleted: bool,
}

impl Tool for FsDelete {
    const NAME: &'static str = "fs_delete";
    const DESCRIPTION: &'static str = "Remove a file, or a directory with all it holds, for good.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let path = super::file_path(params.path.as_bytes())?;
        let precondition = if_match(params.if_match_etag);
        let service = server.service();
        let deleting =
            service.file_delete(&call.caller, &target, &path, params.recursive, precondition);
        call.attend("removing", deleting).await??;
        let text = format!("removed {}", params.path);
        let (path, deleted) = (params.path, true);
        Ok(Answer::of(text, Output { path, deleted }))
    }
}

fn yes() -> bool {
    true
}
