//! `fs_write`: writes a file.

use bytes::Bytes;
use hotcell_service::{Precondition, WriteOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::{Encoding, if_match};
use super::file_view::workspace_path;
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

/// The permission bits a caller may set.
const MODE_MAX: u32 = 0o777;

pub(super) struct FsWrite;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// Below /workspace
    path: String,
    /// At most 4 MiB; longer: in parts with append
    content: String,
    /// Of content
    #[serde(default)]
    encoding: Encoding,
    /// Must be the file's, else conflict
    if_match_etag: Option<String>,
    /// "*": only if it is not there
    if_none_match: Option<Absent>,
    /// Octal, such as "0755"
    mode: Option<String>,
    /// Make missing directories
    #[serde(default = "yes")]
    create_parents: bool,
    /// Add to the end
    #[serde(default)]
    append: bool,
}

/// `"*"`, as in HTTP, or `true`.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(transform = absent)]
enum Absent {
    Flag(bool),
    Text(String),
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    path: String,
    etag: String,
    size: u64,
}

impl Tool for FsWrite {
    const NAME: &'static str = "fs_write";
    const DESCRIPTION: &'static str = "Write a whole file atomically, or append to it. Returns its new etag. With if_match_etag, a file that changed meanwhile is a conflict with its current etag.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let path = super::file_path(params.path.as_bytes())?;
        let options = params.options()?;
        let data = Bytes::from(params.encoding.decode("content", params.content)?);
        let service = server.service();
        let writing = service.file_write(&call.caller, &target, &path, data, options);
        let info = call.attend("writing", writing).await??;
        let output = Output {
            path: workspace_path(&info.path),
            etag: info.etag,
            size: info.size,
        };
        let text = format!(
            "wrote {}: {} bytes, etag {}",
            output.path, output.size, output.etag
        );
        Ok(Answer::of(text, output))
    }
}

impl Params {
    /// Parameters that write a whole file, replacing an existing one.
    pub(super) fn whole(
        container_id: String,
        path: String,
        content: String,
        encoding: Encoding,
    ) -> Self {
        Self {
            container_id,
            path,
            content,
            encoding,
            if_match_etag: None,
            if_none_match: None,
            mode: None,
            create_parents: true,
            append: false,
        }
    }

    fn options(&self) -> Result<WriteOptions, ToolError> {
        Ok(WriteOptions {
            precondition: self.precondition()?,
            mode: self.mode.as_deref().map(mode).transpose()?,
            create_parents: self.create_parents,
            append: self.append,
        })
    }

    fn precondition(&self) -> Result<Precondition, ToolError> {
        let must_be_absent = match &self.if_none_match {
            None | Some(Absent::Flag(false)) => false,
            Some(Absent::Flag(true)) => true,
            Some(Absent::Text(text)) if text == "*" => true,
            Some(Absent::Text(_)) => {
                return Err(ToolError::argument("if_none_match", "it can only be \"*\""));
            }
        };
        match (&self.if_match_etag, must_be_absent) {
            (Some(_), true) => Err(ToolError::invalid(
                "`if_match_etag` and `if_none_match` contradict each other",
            )),
            (None, true) => Ok(Precondition::Absent),
            (etag, false) => Ok(if_match(etag.clone())),
        }
    }
}

fn mode(text: &str) -> Result<u32, ToolError> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= MODE_MAX && text.len() <= 4)
        .ok_or_else(|| ToolError::argument("mode", "octal permission bits, such as \"0755\""))
}

fn absent(schema: &mut schemars::Schema) {
    *schema = schemars::json_schema!({"type": ["string", "boolean"]});
}

fn yes() -> bool {
    true
}
