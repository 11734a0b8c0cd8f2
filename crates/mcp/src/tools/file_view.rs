//! Files as clients see them.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use hotcell_service::{FileInfo, FileKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::ToolError;
use crate::resources::workspace_uri;
use crate::words::rfc3339;

/// A file, a directory or a link.
#[derive(Serialize, JsonSchema)]
pub(super) struct Entry {
    #[schemars(skip)]
    path: String,
    r#type: &'static str,
    size: u64,
    #[schemars(skip)]
    mode: String,
    mtime: String,
    etag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    target: Option<String>,
    /// Names it where `path`, being text, cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    uri: Option<String>,
}

impl Entry {
    /// What is known of a file in a container.
    pub(super) fn new(info: &FileInfo, container: &str) -> Self {
        let is_text = std::str::from_utf8(&info.path).is_ok();
        Self {
            path: absolute(&info.path),
            r#type: kind(info.kind),
            size: info.size,
            mode: format!("{:04o}", info.mode),
            mtime: rfc3339(u64::try_from(info.mtime_ns / 1_000_000).unwrap_or(0)),
            etag: info.etag.clone(),
            target: info.target.as_deref().map(lossy),
            uri: (!is_text).then(|| workspace_uri(container, &info.path)),
        }
    }
}

/// A file in a line.
pub(super) fn line(info: &FileInfo) -> String {
    let name = absolute(&info.path).replace(char::is_control, "\u{fffd}");
    let (kind, size) = (kind(info.kind), info.size);
    let target = info.target.as_deref().map(|target| {
        format!(
            " -> {}",
            lossy(target).replace(char::is_control, "\u{fffd}")
        )
    });
    format!(
        "{kind:9} {:04o} {size:>10}  {name}{}",
        info.mode,
        target.unwrap_or_default()
    )
}

/// A path as commands in the container know it.
pub(crate) fn absolute(path: &[u8]) -> String {
    match lossy(path).trim_start_matches("./") {
        "" | "." => "/workspace".to_owned(),
        path => format!("/workspace/{path}"),
    }
}

/// Bytes as JSON can carry them: text if they are, else base64, and which of the two.
pub(super) fn encoded(data: Vec<u8>) -> (String, &'static str) {
    match String::from_utf8(data) {
        Ok(text) => (text, "utf-8"),
        Err(error) => (BASE64_STANDARD.encode(error.as_bytes()), "base64"),
    }
}

/// A place in a listing, as clients carry it.
pub(super) fn cursor_text(cursor: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(cursor)
}

/// Reads it back.
pub(super) fn cursor_bytes(text: &str) -> Result<Vec<u8>, ToolError> {
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| {
        ToolError::argument("cursor", "not one of ours")
            .with_hint("pass next_cursor of the last page as it was, or nothing")
    })
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
