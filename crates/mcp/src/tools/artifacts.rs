//! The files that a snippet wrote to `/workspace/artifacts`: pictures as images, the rest as links.
//!
//! The snippet controls everything about these files. They are read with the same bounded calls as
//! other files, their number is bounded, and pictures go through [`crate::picture`].

use std::fmt;

use hotcell_domain::ContainerRef;
use hotcell_service::{CodeRun, FileInfo, FilePath};
use rmcp::model::Resource;
use schemars::JsonSchema;
use serde::Serialize;

use super::ToolError;
use super::file_view::workspace_path;
use crate::Server;
use crate::call::Call;
use crate::mime::{mime_type, shown_image};
use crate::picture::{self, PICTURE_BYTES_MAX, Picture, SENT_BYTES_MAX};
use crate::resources::workspace_uri;

/// Most pictures in one answer.
const PICTURES_MAX: usize = 8;

/// Most files in one answer.
const FILES_MAX: usize = 64;

/// Bytes used to detect the file type.
const MAGIC_BYTES: usize = 4096;

/// A file that a snippet made.
#[derive(Serialize, JsonSchema)]
pub(super) struct Artifact {
    path: String,
    mime_type: &'static str,
    size: u64,
    uri: String,
    /// As which picture it is shown; the text alone says so.
    #[serde(skip)]
    shown: Option<String>,
}

/// The artifacts in a form that clients can show.
#[derive(Default)]
pub(super) struct ShownArtifacts {
    pub(super) artifacts: Vec<Artifact>,
    /// Base64 data, with MIME types.
    pub(super) pictures: Vec<(String, &'static str)>,
    pub(super) links: Vec<Resource>,
    pub(super) note: Option<String>,
}

/// Reads the files of a run. A file that cannot be read is listed but not shown.
pub(super) async fn show(server: &Server, call: &Call, run: &CodeRun) -> ShownArtifacts {
    let container = &run.session.container;
    let target = ContainerRef::Id(container.clone());
    let mut shown = ShownArtifacts::default();
    for file in run.artifacts.files.iter().take(FILES_MAX) {
        let head = read(server, call, &target, file, MAGIC_BYTES).await;
        let mime_type = mime_type(&file.path, &head.unwrap_or_default());
        // A person takes the file itself.
        let is_picture = shown_image(mime_type).is_some() && call.repl_handle.is_none();
        let picture = if is_picture && shown.pictures.len() < PICTURES_MAX {
            fit(server, call, &target, file).await
        } else {
            None
        };
        let path = workspace_path(&file.path);
        let uri = workspace_uri(container.as_str(), &file.path);
        let mut artifact = Artifact {
            path,
            mime_type,
            size: file.size,
            uri,
            shown: None,
        };
        match picture {
            Some(picture) => {
                artifact.shown = Some(picture.told);
                shown.pictures.push((picture.base64, picture.mime));
            }
            None => shown.links.push(artifact.link()),
        }
        shown.artifacts.push(artifact);
    }
    let left = run.artifacts.files.len().saturating_sub(FILES_MAX);
    if left > 0 {
        let count = if run.artifacts.has_more {
            "many".to_owned()
        } else {
            left.to_string()
        };
        shown.note = Some(format!(
            "{count} further files are in /workspace/artifacts: sandbox_list_files shows them"
        ));
    }
    shown
}

async fn fit(
    server: &Server,
    call: &Call,
    target: &ContainerRef,
    file: &FileInfo,
) -> Option<Picture> {
    if file.size > PICTURE_BYTES_MAX as u64 {
        return None;
    }
    call.room(SENT_BYTES_MAX).await.ok()?;
    // Acquired before the whole file is read, because that takes memory, too.
    let permit = picture::decode_permit().await;
    let whole = read(server, call, target, file, PICTURE_BYTES_MAX).await;
    picture::fit(permit, whole.ok()?).await.ok()
}

async fn read(
    server: &Server,
    call: &Call,
    target: &ContainerRef,
    file: &FileInfo,
    bytes_max: usize,
) -> Result<Vec<u8>, ToolError> {
    let path = FilePath::parse(&file.path)?;
    let service = server.service();
    let limit = Some(bytes_max as u64);
    let opened = service.file_read(&call.caller, target, &path, 0, limit);
    let (_, reader) = opened.await?;
    Ok(reader.collect(bytes_max).await?)
}

impl Artifact {
    fn link(&self) -> Resource {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        Resource::new(&self.uri, name)
            .with_mime_type(self.mime_type)
            .with_size(self.size)
    }
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.replace(char::is_control, "\u{fffd}");
        match &self.shown {
            Some(shown) => write!(
                f,
                "{path}: {shown}, {} bytes, shown; {}",
                self.size, self.uri
            ),
            None => write!(
                f,
                "{path}: {}, {} bytes; {}",
                self.mime_type, self.size, self.uri
            ),
        }
    }
}
