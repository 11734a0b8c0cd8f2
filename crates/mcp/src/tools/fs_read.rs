//! `fs_read`: reads a file.

use hotcell_service::{FileInfo, FilePath, FileReader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::ANSWER_BYTES_MAX;
use super::arguments::INLINE_BYTES_MAX;
use super::file_view::{FileText, workspace_path};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;
use crate::mime::{mime_type, shown_image};
use crate::picture::{self, PICTURE_BYTES_MAX, Picture, SENT_BYTES_MAX};

/// The default number of bytes.
const LIMIT_DEFAULT: u64 = ANSWER_BYTES_MAX as u64;

/// Bytes used to detect the file type.
const MAGIC_BYTES: usize = 4096;

pub(super) struct FsRead;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// Below /workspace
    path: String,
    /// First byte; to read on, the last `next_offset`
    #[serde(default)]
    offset: u64,
    /// Bytes
    #[schemars(range(min = 1, max = INLINE_BYTES_MAX), extend("default" = LIMIT_DEFAULT))]
    limit: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    path: String,
    content: String,
    encoding: &'static str,
    etag: String,
    size: u64,
    mime_type: &'static str,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
}

/// The part of a file that was read.
struct Read {
    info: FileInfo,
    data: Vec<u8>,
    /// Why a picture file is not shown as a picture.
    no_picture: Option<&'static str>,
}

impl Tool for FsRead {
    const NAME: &'static str = "fs_read";
    const DESCRIPTION: &'static str = "Read a file: text as utf-8, other content as base64, a picture as an image (with a limit: its bytes). \
        Returns content, size and an etag that guards a later fs_write; truncated=true: read on with offset=next_offset.";
    const HINTS: Hints = Hints::READS;
    const SHOWS_PICTURES: bool = true;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let reading = read(server, &params, call);
        match call.attend("reading", reading).await?? {
            (read, Some(picture)) => Ok(shown(&read.info, picture)),
            (read, None) => Ok(answer(server, &params, read)),
        }
    }
}

impl Params {
    /// Parameters that read a file from its beginning.
    pub(super) fn whole(container_id: String, path: String) -> Self {
        Self {
            container_id,
            path,
            offset: 0,
            limit: None,
        }
    }
}

/// Reads the requested range, or all of a picture.
async fn read(
    server: &Server,
    params: &Params,
    call: &Call,
) -> Result<(Read, Option<Picture>), ToolError> {
    let target = super::container_ref(&params.container_id)?;
    let path = super::file_path(params.path.as_bytes())?;
    let open = async |path: &FilePath, limit: u64| {
        let service = server.service();
        let opened = service.file_read(&call.caller, &target, path, params.offset, Some(limit));
        Ok::<(FileInfo, FileReader), ToolError>(opened.await?)
    };
    let limit = params.limit.unwrap_or(LIMIT_DEFAULT);
    call.room(usize::try_from(limit).unwrap_or(INLINE_BYTES_MAX))
        .await?;
    let (info, reader) = open(&path, limit).await?;
    let data = reader.collect(INLINE_BYTES_MAX).await?;
    let mut read = Read {
        info,
        data,
        no_picture: None,
    };
    let is_picture = shown_image(read.mime_type()).is_some();
    if !is_picture || params.offset > 0 || params.limit.is_some() {
        return Ok((read, None));
    }
    if read.info.size > PICTURE_BYTES_MAX as u64 {
        read.no_picture = Some(picture::TOO_LARGE);
        return Ok((read, None));
    }
    call.room(SENT_BYTES_MAX).await?;
    // Acquired before the whole file is read, because that takes memory, too.
    let permit = picture::decode_permit().await;
    let whole = if read.data.len() as u64 == read.info.size {
        read.data.clone()
    } else {
        let (info, reader) = open(&path, PICTURE_BYTES_MAX as u64).await?;
        read.info = info;
        reader.collect(PICTURE_BYTES_MAX).await?
    };
    match picture::fit(permit, whole).await {
        Ok(picture) => Ok((read, Some(picture))),
        Err(why) => {
            read.no_picture = Some(why);
            Ok((read, None))
        }
    }
}

impl Read {
    fn mime_type(&self) -> &'static str {
        mime_type(
            &self.info.path,
            &self.data[..self.data.len().min(MAGIC_BYTES)],
        )
    }
}

/// A picture, with a text that describes it.
fn shown(info: &FileInfo, picture: Picture) -> Answer {
    let path = workspace_path(&info.path);
    let text = format!(
        "[{path}: {}, {} bytes, etag {}; to get its bytes, pass a limit]",
        picture.told, info.size, info.etag
    );
    Answer::picture(text, picture.base64, picture.mime)
}

fn answer(server: &Server, params: &Params, read: Read) -> Answer {
    let mime_type = read.mime_type();
    let Read {
        info,
        data,
        no_picture,
    } = read;
    let offset = params.offset;
    let has_more = offset.saturating_add(data.len() as u64) < info.size;
    // A caller that names a limit gets that many bytes, however they are encoded.
    let bytes_max = params.limit.map_or(ANSWER_BYTES_MAX, |_| usize::MAX);
    let shown = FileText::new(data, bytes_max, has_more);
    let end = offset.saturating_add(shown.bytes as u64);
    let truncated = end < info.size;
    let url = server.file_url(&params.container_id, &info.path);
    let next_step = next_step(no_picture, truncated.then_some(end));
    let text = text(&info, &shown, (offset, mime_type), next_step.as_deref());
    let output = Output {
        path: workspace_path(&info.path),
        content: shown.content,
        encoding: shown.encoding,
        etag: info.etag,
        size: info.size,
        mime_type,
        truncated,
        next_offset: truncated.then_some(end),
        url: url.filter(|_| truncated),
        next_step,
    };
    Answer::of(text, output)
}

fn next_step(no_picture: Option<&str>, next: Option<u64>) -> Option<String> {
    let parts = [
        no_picture.map(|why| {
            format!("not shown as a picture: {why}; a program in the container can convert it")
        }),
        next.map(|next| format!("read on with offset={next}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The content, then a line that describes it and says how to read the rest.
fn text(
    info: &FileInfo,
    shown: &FileText,
    (offset, mime_type): (u64, &str),
    next_step: Option<&str>,
) -> String {
    let (path, size) = (workspace_path(&info.path), info.size);
    let end = offset.saturating_add(shown.bytes as u64);
    let part = if offset == 0 && end == size {
        format!("{size} bytes")
    } else {
        format!("bytes {offset} to {end} of {size}")
    };
    let is_line = shown.content.is_empty() || shown.content.ends_with('\n');
    let newline = match shown.encoding {
        "utf-8" if !is_line && end < size => ", the last line goes on",
        "utf-8" if !is_line => ", no newline at its end",
        _ => "",
    };
    let next = next_step.map(|next| format!("; {next}"));
    format!(
        "{}[{path}: {part}{newline}, {mime_type}, etag {}{}]",
        shown.text(),
        info.etag,
        next.unwrap_or_default()
    )
}
