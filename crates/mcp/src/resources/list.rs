//! Lists resources.

use hotcell_domain::Caller;
use hotcell_service::{ContainerName, ExecSummary};
use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, Resource, ResourceTemplate};

use super::uri::workspace_uri;
use crate::Server;
use crate::tools::ToolError;

/// Resources per page.
const PAGE_MAX: usize = 100;

/// The output of this many execs is listed, newest first.
const EXECS_MAX: usize = 200;

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("workspace://{container_id}/{path}", "workspace")
            .with_description("A file of a container, or what is in a directory"),
        ResourceTemplate::new("logs://{exec_id}", "logs")
            .with_description("What a command wrote")
            .with_mime_type("text/plain"),
        ResourceTemplate::new("stats://{container_id}", "stats")
            .with_description("A container's limits and what it uses")
            .with_mime_type("application/json"),
        ResourceTemplate::new("hotcell://capabilities/{server}", "capabilities")
            .with_description("The tools of an MCP server that run_python can call")
            .with_mime_type("text/markdown"),
    ]
}

/// One page of the caller's resources. The cursor is the last URI of the previous page, so pages
/// stay consistent when resources come and go in between.
pub(crate) async fn list(
    server: &Server,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let all = all(server, caller)
        .await
        .map_err(ToolError::into_protocol)?;
    let from = match cursor {
        None => 0,
        Some(cursor) => after(&all, cursor).ok_or_else(bad_cursor)?,
    };
    let page: Vec<Resource> = all[from..].iter().take(PAGE_MAX).cloned().collect();
    let has_more = from + page.len() < all.len();
    let next_cursor = page
        .last()
        .filter(|_| has_more)
        .map(|last| last.uri.clone());
    let mut result = ListResourcesResult::with_all_items(page);
    result.next_cursor = next_cursor;
    Ok(result)
}

async fn all(server: &Server, caller: &Caller) -> Result<Vec<Resource>, ToolError> {
    let containers = server.service().container_names(caller);
    let execs = server.service().execs(caller, None, true).await?;
    let newest = &execs[execs.len().saturating_sub(EXECS_MAX)..];
    let mut all: Vec<Resource> = containers.iter().map(workspace).collect();
    all.extend(containers.iter().map(stats));
    all.extend(newest.iter().map(logs));
    all.push(
        Resource::new("hotcell://capabilities", "capabilities")
            .with_description("How to write scripts for run_python, and the servers they can call")
            .with_mime_type("text/markdown"),
    );
    all.push(
        Resource::new("hotcell://egress", "egress")
            .with_description("What containers may reach, by egress profile")
            .with_mime_type("application/json"),
    );
    all.sort_by(|a, b| rank(&a.uri).cmp(&rank(&b.uri)));
    Ok(all)
}

/// The index after `cursor`, whether or not it still exists.
fn after(all: &[Resource], cursor: &str) -> Option<usize> {
    let (order, _) = rank(cursor);
    (order < 4).then(|| all.partition_point(|resource| rank(&resource.uri) <= rank(cursor)))
}

/// Sort key: workspaces, then statistics, then output; each by age, which is the order of ids.
fn rank(uri: &str) -> (u8, &str) {
    let order = match uri.split_once("://") {
        Some(("workspace", _)) => 0,
        Some(("stats", _)) => 1,
        Some(("logs", _)) => 2,
        Some(("hotcell", _)) => 3,
        _ => 4,
    };
    (order, uri)
}

fn workspace(container: &ContainerName) -> Resource {
    Resource::new(workspace_uri(container.id.as_str(), b""), name(container))
        .with_description("The files of this container")
        .with_mime_type("inode/directory")
}

fn stats(container: &ContainerName) -> Resource {
    Resource::new(
        format!("stats://{}", container.id),
        format!("{} stats", name(container)),
    )
    .with_mime_type("application/json")
}

fn logs(exec: &ExecSummary) -> Resource {
    let program = exec
        .argv
        .first()
        .map_or("", |program| crate::text::truncate(program, 64));
    Resource::new(
        format!("logs://{}", exec.id),
        format!("{program} ({})", exec.status.as_str()),
    )
    .with_mime_type("text/plain")
}

fn name(container: &ContainerName) -> String {
    container
        .alias
        .as_ref()
        .map_or_else(|| container.id.to_string(), ToString::to_string)
}

fn bad_cursor() -> ErrorData {
    ErrorData::invalid_params("the cursor is not one of ours", None)
}
