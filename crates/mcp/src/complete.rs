//! Completion: values for the arguments of resource templates and prompts.

use hotcell_domain::Caller;
use hotcell_service::{FileKind, List};
use rmcp::ErrorData;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionContext, CompletionInfo};

use crate::Server;
use crate::tools::{ToolError, container_ref, file_path};

/// Entries of a directory that are searched.
const ENTRIES_MAX: u32 = 1000;

/// Completes an argument; empty if its target does not exist.
pub(crate) async fn complete(
    server: &Server,
    caller: &Caller,
    request: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let begun = request.argument.value;
    let values = match request.argument.name.as_str() {
        "container_id" => Ok(containers(server, caller)),
        "exec_id" => execs(server, caller).await,
        "path" => Ok(paths(server, caller, request.context, &begun)
            .await
            .unwrap_or_default()),
        _ => Ok(Vec::new()),
    };
    let values = values.map_err(ToolError::into_protocol)?;
    Ok(CompleteResult::new(bounded(values, &begun)))
}

/// The values with this prefix, as many as the protocol allows.
fn bounded(mut values: Vec<String>, begun: &str) -> CompletionInfo {
    values.retain(|value| value.starts_with(begun));
    let total = u32::try_from(values.len()).ok();
    let has_more = values.len() > CompletionInfo::MAX_VALUES;
    values.truncate(CompletionInfo::MAX_VALUES);
    CompletionInfo::with_pagination(values, total, has_more).expect("it was just bounded")
}

/// Aliases first, for people; then ids, newest first.
fn containers(server: &Server, caller: &Caller) -> Vec<String> {
    let names = server.service().container_names(caller);
    let aliases = names
        .iter()
        .filter_map(|name| name.alias.as_ref().map(ToString::to_string));
    let ids = names.iter().rev().map(|name| name.id.to_string());
    aliases.chain(ids).collect()
}

async fn execs(server: &Server, caller: &Caller) -> Result<Vec<String>, ToolError> {
    let execs = server.service().execs(caller, None, true).await?;
    Ok(execs.iter().rev().map(|exec| exec.id.to_string()).collect())
}

/// Entries of the directory that has been typed so far.
async fn paths(
    server: &Server,
    caller: &Caller,
    context: Option<CompletionContext>,
    begun: &str,
) -> Option<Vec<String>> {
    let context = context?;
    let target = container_ref(context.get_argument("container_id")?).ok()?;
    let (directory, _) = begun.rsplit_once('/').unwrap_or(("", ""));
    let listed = if directory.is_empty() { "." } else { directory };
    let list = List {
        limit: ENTRIES_MAX,
        ..List::default()
    };
    let path = file_path(listed.as_bytes()).ok()?;
    let page = server
        .service()
        .file_list(caller, &target, &path, list)
        .await
        .ok()?;
    let names = page.entries.into_iter().filter_map(|info| {
        let slash = if info.kind == FileKind::Directory {
            "/"
        } else {
            ""
        };
        let path = String::from_utf8(info.path).ok()?;
        let (_, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let above = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        Some(format!("{above}{name}{slash}"))
    });
    Some(names.collect())
}
