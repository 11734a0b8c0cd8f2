//! `fs_list`: what is in a directory.

use hotcell_service::List;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file_view::{Entry, cursor_bytes, cursor_text, line};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

/// Entries of a page.
const ENTRIES_MAX: u32 = 1000;

/// Entries of a page where the caller says nothing.
const ENTRIES_DEFAULT: u32 = 200;

pub(super) struct FsList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    container_id: String,
    #[serde(default = "workspace")]
    path: String,
    #[serde(default)]
    recursive: bool,
    /// Such as **/*.py
    glob: Option<String>,
    #[serde(default = "entries")]
    #[schemars(range(min = 1, max = ENTRIES_MAX))]
    limit: u32,
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Tool for FsList {
    const NAME: &'static str = "fs_list";
    const DESCRIPTION: &'static str = "List a directory or, with recursive, its whole tree. More pages: pass next_cursor as cursor.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let path = super::file_path(params.path.as_bytes())?;
        let list = List {
            recursive: params.recursive,
            glob: params.glob,
            limit: params.limit,
            cursor: params.cursor.as_deref().map(cursor_bytes).transpose()?,
        };
        let listing = server
            .service()
            .file_list(&call.caller, &target, &path, list);
        let page = call.attend("listing", listing).await??;
        let next_cursor = page.next_cursor.as_deref().map(cursor_text);
        let mut text: Vec<String> = page.entries.iter().map(line).collect();
        if text.is_empty() {
            text.push("nothing there".to_owned());
        }
        text.extend(
            next_cursor
                .as_ref()
                .map(|next| format!("[there is more: cursor={next}]")),
        );
        let entries = page.entries.iter();
        let entries = entries
            .map(|info| Entry::new(info, &params.container_id))
            .collect();
        Ok(Answer::of(
            text.join("\n"),
            Output {
                entries,
                next_cursor,
            },
        ))
    }
}

fn workspace() -> String {
    "/workspace".to_owned()
}

fn entries() -> u32 {
    ENTRIES_DEFAULT
}
