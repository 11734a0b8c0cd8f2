//! `fs_stat`: metadata of a path.

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_view::{FileEntry, line};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct FsStat;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// Below /workspace
    path: String,
}

impl Tool for FsStat {
    const NAME: &'static str = "fs_stat";
    const DESCRIPTION: &'static str =
        "Tell what a path is: type, size, mode, mtime, etag. A symlink is not followed.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = FileEntry;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let path = super::file_path(params.path.as_bytes())?;
        let info = server
            .service()
            .file_stat(&call.caller, &target, &path)
            .await?;
        Ok(Answer::of(
            line(&info),
            FileEntry::new(&info, &params.container_id),
        ))
    }
}
