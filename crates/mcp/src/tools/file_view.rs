//! Files as clients see them.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use hotcell_service::{FileInfo, FileKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::ToolError;
use crate::resources::workspace_uri;
use hotcell_domain::rfc3339;

/// A file, a directory or a link.
#[derive(Serialize, JsonSchema)]
pub(super) struct FileEntry {
    path: String,
    /// file, directory, symlink or other
    r#type: &'static str,
    size: u64,
    mode: String,
    mtime: String,
    etag: String,
    /// Of a symlink
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Names what a path, being text, cannot
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
}

/// Content of a file, or a part of it, in a form that JSON can carry.
pub(super) struct FileText {
    pub(super) content: String,
    /// `utf-8` or `base64`.
    pub(super) encoding: &'static str,
    /// How many bytes of the file the content covers.
    pub(super) bytes: usize,
}

impl FileText {
    /// As much of `data` as takes at most `bytes_max` bytes in this form. Text is cut between
    /// characters; a character that is cut off at the end of `data` is left out if `has_more` of
    /// the file follows.
    pub(super) fn new(mut data: Vec<u8>, bytes_max: usize, has_more: bool) -> Self {
        let is_cut = data.len() > bytes_max || has_more;
        data.truncate(bytes_max);
        if is_cut
            && let Err(error) = std::str::from_utf8(&data)
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            data.truncate(error.valid_up_to());
        }
        match String::from_utf8(data) {
            Ok(content) => Self {
                bytes: content.len(),
                encoding: "utf-8",
                content,
            },
            Err(error) => {
                let mut data = error.into_bytes();
                data.truncate(bytes_max / 4 * 3);
                Self {
                    bytes: data.len(),
                    encoding: "base64",
                    content: BASE64_STANDARD.encode(&data),
                }
            }
        }
    }

    /// The content as text: marked if it is base64, and ending in a newline.
    pub(super) fn text(&self) -> String {
        let mark = if self.encoding == "base64" {
            "[base64]\n"
        } else {
            ""
        };
        let content = &self.content;
        let end = if content.is_empty() || content.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        format!("{mark}{content}{end}")
    }
}

impl FileEntry {
    /// The metadata of a file in a container.
    pub(super) fn new(info: &FileInfo, container: &str) -> Self {
        let is_text = std::str::from_utf8(&info.path).is_ok();
        Self {
            path: workspace_path(&info.path),
            r#type: kind(info.kind),
            size: info.size,
            mode: format!("{:04o}", info.mode),
            mtime: mtime(info),
            etag: info.etag.clone(),
            target: info.target.as_deref().map(lossy),
            uri: (!is_text).then(|| workspace_uri(container, &info.path)),
        }
    }
}

/// A file in one line.
pub(super) fn line(info: &FileInfo) -> String {
    let name = workspace_path(&info.path).replace(char::is_control, "\u{fffd}");
    let (kind, size) = (kind(info.kind), info.size);
    let target = info.target.as_deref().map(|target| {
        format!(
            " -> {}",
            lossy(target).replace(char::is_control, "\u{fffd}")
        )
    });
    format!(
        "{kind:9} {:04o} {size:>10}  {name}{}  {}  etag {}",
        info.mode,
        target.unwrap_or_default(),
        mtime(info),
        info.etag
    )
}

/// The path that commands in the container use.
pub fn workspace_path(path: &[u8]) -> String {
    match lossy(path).trim_start_matches("./") {
        "" | "." => "/workspace".to_owned(),
        path => format!("/workspace/{path}"),
    }
}

/// Encodes a listing's cursor for clients.
pub(super) fn cursor_text(cursor: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(cursor)
}

/// Decodes a cursor that a client sent.
pub(super) fn cursor_bytes(text: &str) -> Result<Vec<u8>, ToolError> {
    BASE64_URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| bad_cursor())
}

/// The error for a cursor that no page returned.
pub(super) fn bad_cursor() -> ToolError {
    ToolError::argument("cursor", "not one of ours")
        .with_hint("pass next_cursor of the last page as it was, or nothing")
}

fn mtime(info: &FileInfo) -> String {
    rfc3339(u64::try_from(info.mtime_ns / 1_000_000).unwrap_or(0))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &[u8], bytes_max: usize, has_more: bool) -> (String, &'static str, usize) {
        let shown = FileText::new(data.to_vec(), bytes_max, has_more);
        (shown.content, shown.encoding, shown.bytes)
    }

    #[test]
    fn a_part_of_a_text_ends_between_characters() {
        let text = "aäb".as_bytes();
        assert_eq!(shown(text, 9, false), ("aäb".to_owned(), "utf-8", 4));
        assert_eq!(shown(text, 2, false), ("a".to_owned(), "utf-8", 1));
        assert_eq!(shown(&text[..2], 9, true), ("a".to_owned(), "utf-8", 1));
        // At the end of a file, an incomplete character means that it is not text.
        assert_eq!(shown(&text[..2], 9, false).1, "base64");
    }

    #[test]
    fn base64_has_no_more_bytes_than_it_may() {
        let (content, encoding, bytes) = shown(&[0xff; 100], 64, false);
        assert_eq!((content.len(), encoding, bytes), (64, "base64", 48));
    }
}
