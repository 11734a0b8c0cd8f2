//! `fs_read`: a file's content.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_service::FileInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::INLINE_BYTES_MAX;
use super::file_view::encoded;
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;
use crate::words::{head, mime_type, shown_image};

/// Content that is shown as text; structured content has all of it.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// Of a file, to see what it is.
const MAGIC_BYTES: usize = 4096;

pub(super) struct FsRead;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    container_id: String,
    path: String,
    #[serde(default)]
    offset: u64,
    #[schemars(range(min = 1, max = INLINE_BYTES_MAX))]
    limit: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    content: String,
    encoding: &'static str,
    etag: String,
    size: u64,
    #[schemars(skip)]
    mime_type: &'static str,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    url: Option<String>,
}

impl Tool for FsRead {
    const NAME: &'static str = "fs_read";
    const DESCRIPTION: &'static str = "Read a file under /workspace: text as utf-8, anything else as base64, pictures as images. \
        Its etag guards a later fs_write.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let path = super::file_path(params.path.as_bytes())?;
        let limit = params.limit.unwrap_or(INLINE_BYTES_MAX as u64);
        let service = server.service();
        let reading = async {
            call.room(usize::try_from(limit).unwrap_or(INLINE_BYTES_MAX))
                .await?;
            let (info, reader) = service
                .file_read(&call.caller, &target, &path, params.offset, Some(limit))
                .await?;
            let data = reader.collect(INLINE_BYTES_MAX).await?;
            Ok::<_, ToolError>((info, data))
        };
        let (info, data) = call.attend("reading", reading).await??;
        Ok(answer(server, &params, &info, data))
    }
}

fn answer(server: &Server, params: &Params, info: &FileInfo, mut data: Vec<u8>) -> Answer {
    let is_truncated = params.offset.saturating_add(data.len() as u64) < info.size;
    if is_truncated {
        cut_between_characters(&mut data);
    }
    let end = params.offset.saturating_add(data.len() as u64);
    let mime_type = mime_type(&info.path, &data[..data.len().min(MAGIC_BYTES)]);
    let is_whole = params.offset == 0 && !is_truncated;
    let image = shown_image(mime_type).filter(|_| is_whole);
    let image = image.map(|mime| (BASE64_STANDARD.encode(&data), mime));
    let (content, encoding) = encoded(data);
    let output = Output {
        encoding,
        etag: info.etag.clone(),
        size: info.size,
        mime_type,
        truncated: is_truncated,
        next_offset: is_truncated.then_some(end),
        url: server
            .file_url(&params.container_id, &info.path)
            .filter(|_| is_truncated),
        content,
    };
    let answer = Answer::of(text(&output), output);
    match image {
        Some((data, mime)) => answer.with_image(data, mime),
        None => answer,
    }
}

/// The content, as far as a text shows it, and how to get the rest.
fn text(output: &Output) -> String {
    let Output {
        size,
        mime_type,
        content,
        ..
    } = output;
    if output.encoding == "base64" {
        return format!("[{mime_type}, {size} bytes; structured content has them as base64]");
    }
    let shown = head(content, TEXT_BYTES_MAX);
    if shown.len() < content.len() {
        return format!(
            "{shown}\n[{} of {size} bytes are shown; read on with offset and a limit of {TEXT_BYTES_MAX}]",
            shown.len()
        );
    }
    match output.next_offset {
        Some(next) => format!("{shown}\n[there are {size} bytes; read on with offset={next}]"),
        None => shown.to_owned(),
    }
}

/// Leaves a character that was cut off to the next read, if the rest is text.
fn cut_between_characters(data: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(data)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        data.truncate(error.valid_up_to());
    }
}
