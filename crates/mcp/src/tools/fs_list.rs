//! `fs_list`: lists a directory.

use hotcell_domain::ContainerRef;
use hotcell_service::{FilePath, List, Page};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::ANSWER_BYTES_MAX;
use super::file_view::{FileEntry, cursor_bytes, cursor_text, line};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

const ENTRIES_MAX: u32 = 1000;

const ENTRIES_DEFAULT: u32 = 200;

/// The size of an entry besides its path and its target.
const ENTRY_BYTES: usize = 160;

pub(super) struct FsList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// A directory
    #[serde(default = "workspace")]
    path: String,
    /// Its whole tree
    #[serde(default)]
    recursive: bool,
    /// Only paths that match, such as **/*.py
    glob: Option<String>,
    /// Entries of a page
    #[serde(default = "entries")]
    #[schemars(range(min = 1, max = ENTRIES_MAX))]
    limit: u32,
    /// `next_cursor` of the page before
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    entries: Vec<FileEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
}

impl Tool for FsList {
    const NAME: &'static str = "fs_list";
    const DESCRIPTION: &'static str = "List a directory or, with recursive, its whole tree: path, type, size, mode, mtime, etag. More pages: pass next_cursor as cursor.";
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
        let listing = fitting(server, call, &target, &path, list);
        let page = call.attend("listing", listing).await??;
        let next_cursor = page.next_cursor.as_deref().map(cursor_text);
        let next_step = next_cursor.as_ref();
        let next_step = next_step.map(|next| format!("there is more: pass cursor={next}"));
        let mut text: Vec<String> = page.entries.iter().map(line).collect();
        if text.is_empty() {
            text.push("nothing there".to_owned());
        }
        text.extend(next_step.as_ref().map(|next| format!("[{next}]")));
        let entries = page.entries.iter();
        let entries = entries
            .map(|info| FileEntry::new(info, &params.container_id))
            .collect();
        Ok(Answer::of(
            text.join("\n"),
            Output {
                entries,
                next_cursor,
                next_step,
            },
        ))
    }
}

/// A page that fits into an answer: names may be long. Only the agent knows where a page continues,
/// so a page that is too long is requested again with fewer entries.
async fn fitting(
    server: &Server,
    call: &Call,
    target: &ContainerRef,
    path: &FilePath,
    list: List,
) -> Result<Page, ToolError> {
    let service = server.service();
    let listing = service.file_list(&call.caller, target, path, list.clone());
    let page = listing.await?;
    let mut left = ANSWER_BYTES_MAX;
    let fitting = page.entries.iter().take_while(|info| {
        let cost = ENTRY_BYTES + info.path.len() + info.target.as_ref().map_or(0, Vec::len);
        let fits = cost <= left;
        left = left.saturating_sub(cost);
        fits
    });
    let fitting = u32::try_from(fitting.count().max(1)).unwrap_or(list.limit);
    if fitting as usize >= page.entries.len() {
        return Ok(page);
    }
    let shorter = List {
        limit: fitting,
        ..list
    };
    let listing = service.file_list(&call.caller, target, path, shorter);
    Ok(listing.await?)
}

impl Params {
    /// Parameters for the first or a later page of a directory.
    pub(super) fn of_directory(container_id: String, path: String, cursor: Option<String>) -> Self {
        Self {
            container_id,
            path,
            recursive: false,
            glob: None,
            limit: ENTRIES_DEFAULT,
            cursor,
        }
    }
}

pub(super) fn workspace() -> String {
    "/workspace".to_owned()
}

fn entries() -> u32 {
    ENTRIES_DEFAULT
}
