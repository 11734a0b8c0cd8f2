//! Reads resources.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::{ContainerRef, ExecId};
use hotcell_service::{FileKind, List, Poll};
use rmcp::model::{ReadResourceResult, ResourceContents};
use std::time::Duration;

use super::uri::ResourceUri;
use crate::Server;
use crate::call::Call;
use crate::mime::mime_type;
use crate::tools::{ToolError, file_path, profiles, stats, workspace_path};

/// The most content of a file or output; the tools can read the rest.
const CONTENT_BYTES_MAX: usize = 1 << 20;

const ENTRIES_MAX: u32 = 1000;

/// Bytes read to detect the file type.
const MAGIC_BYTES: usize = 4096;

/// Reads a resource. If it is too long, a second content item says how to read the rest.
pub(crate) async fn read(
    server: &Server,
    call: &Call,
    uri: &str,
) -> Result<ReadResourceResult, ToolError> {
    let reading = async {
        match ResourceUri::parse(uri)? {
            ResourceUri::Workspace(target, path) => {
                workspace(server, call, uri, &target, &path).await
            }
            ResourceUri::Capabilities(name) => capabilities(server, call, uri, name.as_deref()),
            ResourceUri::Egress => {
                let view = server.service().egress(&call.caller);
                let text = ResourceContents::text(profiles(&view).to_string(), uri);
                Ok(vec![text.with_mime_type("application/json")])
            }
            ResourceUri::Logs(id) => logs(server, call, uri, &id).await,
            ResourceUri::Stats(target) => {
                let view = server.service().container(&call.caller, &target).await?;
                let text = ResourceContents::text(stats(&view).to_string(), uri);
                Ok(vec![text.with_mime_type("application/json")])
            }
        }
    };
    let contents = call.attend("reading", reading).await??;
    Ok(ReadResourceResult::new(contents))
}

/// How to write scripts, or the tools of one server as far as they are known.
fn capabilities(
    server: &Server,
    call: &Call,
    uri: &str,
    name: Option<&str>,
) -> Result<Vec<ResourceContents>, ToolError> {
    let servers = server.codemode().servers(call.caller.principal.as_str());
    let all = servers.list();
    let text = match name {
        None => hotcell_codemode::capabilities(&all),
        Some(name) => {
            let mut named = all
                .iter()
                .filter(|one| one.name == name || one.alias == name);
            let found = named.next();
            let found = found.ok_or_else(|| ToolError::not_found("resource", uri))?;
            let tools = servers.known(&found.name);
            hotcell_codemode::server_capabilities(found, tools.as_deref())
        }
    };
    Ok(vec![
        ResourceContents::text(text, uri).with_mime_type("text/markdown"),
    ])
}

async fn workspace(
    server: &Server,
    call: &Call,
    uri: &str,
    target: &ContainerRef,
    path: &[u8],
) -> Result<Vec<ResourceContents>, ToolError> {
    let file = file_path(path)?;
    let service = server.service();
    let info = service.file_stat(&call.caller, target, &file).await?;
    if info.kind == FileKind::Directory {
        return directory(server, call, uri, target, path).await;
    }
    call.room(CONTENT_BYTES_MAX).await?;
    let limit = Some(CONTENT_BYTES_MAX as u64);
    let (info, reader) = service
        .file_read(&call.caller, target, &file, 0, limit)
        .await?;
    let mut data = reader.collect(CONTENT_BYTES_MAX).await?;
    let is_cut = (data.len() as u64) < info.size;
    let mime = mime_type(path, &data[..data.len().min(MAGIC_BYTES)]);
    if is_cut
        && let Err(error) = std::str::from_utf8(&data)
        && error.error_len().is_none()
    {
        data.truncate(error.valid_up_to());
    }
    let end = data.len();
    let content = match String::from_utf8(data) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), uri),
    };
    let mut contents = vec![content.with_mime_type(mime)];
    if is_cut {
        let more = format!(
            "{end} of {} bytes; read on with fs_read and offset={end}",
            info.size
        );
        contents.push(ResourceContents::text(more, uri));
    }
    Ok(contents)
}

async fn directory(
    server: &Server,
    call: &Call,
    uri: &str,
    target: &ContainerRef,
    path: &[u8],
) -> Result<Vec<ResourceContents>, ToolError> {
    let list = List {
        limit: ENTRIES_MAX,
        ..List::default()
    };
    let path = file_path(path)?;
    let page = server
        .service()
        .file_list(&call.caller, target, &path, list)
        .await?;
    let line = |info: &hotcell_service::FileInfo| {
        let slash = if info.kind == FileKind::Directory {
            "/"
        } else {
            ""
        };
        format!(
            "{}{slash}",
            workspace_path(&info.path).replace(char::is_control, "\u{fffd}")
        )
    };
    let lines: Vec<String> = page.entries.iter().map(line).collect();
    let mut contents = vec![ResourceContents::text(lines.join("\n"), uri)];
    if page.next_cursor.is_some() {
        let more = format!("the first {ENTRIES_MAX} entries; fs_list shows all, page by page");
        contents.push(ResourceContents::text(more, uri));
    }
    Ok(contents)
}

async fn logs(
    server: &Server,
    call: &Call,
    uri: &str,
    id: &ExecId,
) -> Result<Vec<ResourceContents>, ToolError> {
    let poll = Poll {
        after_seq: 0,
        wait: Duration::ZERO,
        bytes_max: CONTENT_BYTES_MAX,
        until_end: false,
    };
    call.room(CONTENT_BYTES_MAX).await?;
    let view = server.service().exec_poll(&call.caller, id, poll).await?;
    let data: Vec<u8> = view
        .messages
        .iter()
        .flat_map(|message| &message.data[..])
        .copied()
        .collect();
    let content = match String::from_utf8(data) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), uri)
            .with_mime_type("application/octet-stream"),
    };
    let mut contents = vec![content];
    if view.truncated_bytes > 0 {
        let dropped = format!(
            "{} bytes were dropped from the middle",
            view.truncated_bytes
        );
        contents.push(ResourceContents::text(dropped, uri));
    }
    if !view.is_complete {
        let more = format!(
            "there may be more: exec_poll with after_seq={}",
            view.next_seq
        );
        contents.push(ResourceContents::text(more, uri));
    }
    Ok(contents)
}
