//! `fs_import`: unpacks a tar.

use std::io::Read;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use hotcell_service::FileWriter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::INLINE_BYTES_MAX;
use super::{Answer, Code, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

/// Bytes unpacked at a time. The container's agent limits the total.
const PIECE_BYTES: usize = 64 << 10;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(super) struct FsImport;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// Directory; made if missing
    #[serde(default = "workspace")]
    dest: String,
    /// tar or tar.gz as base64, at most 4 MiB
    archive: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    dest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Where to PUT it
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<&'static str>,
}

/// How a client without HTTP sends an archive that is too large for a message.
const IN_PARTS: &str = "write it in parts of at most 4 MiB with fs_write path=import.tgz encoding=base64 append=true, \
    then unpack it inside, such as exec_start cmd=[\"tar\",\"xf\",\"import.tgz\",\"-C\",\"DIR\"]";

impl Tool for FsImport {
    const NAME: &'static str = "fs_import";
    const DESCRIPTION: &'static str = "Unpack a tar below dest, all of it or nothing. Without archive, returns a URL to PUT a large one to.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let dest = super::file_path(params.dest.as_bytes())?;
        let Some(archive) = params.archive()? else {
            server.service().container(&call.caller, &target).await?;
            return elsewhere(server, params);
        };
        let service = server.service();
        let importing = async {
            let writer = service.file_import(&call.caller, &target, &dest).await?;
            unpack(writer, archive).await
        };
        let (entries, bytes) = call.attend("unpacking", importing).await??;
        let text = format!(
            "unpacked {entries} entries, {bytes} bytes, below {}",
            params.dest
        );
        let output = Output {
            dest: params.dest,
            entries: Some(entries),
            bytes: Some(bytes),
            url: None,
            next_step: None,
        };
        Ok(Answer::of(text, output))
    }
}

impl Params {
    /// The archive, if it is given and not too large.
    fn archive(&self) -> Result<Option<Vec<u8>>, ToolError> {
        let Some(text) = &self.archive else {
            return Ok(None);
        };
        if text.len() / 4 * 3 > INLINE_BYTES_MAX + 2 {
            return Ok(None);
        }
        let archive = BASE64_STANDARD
            .decode(text.trim_ascii())
            .map_err(|error| ToolError::argument("archive", format!("not base64: {error}")))?;
        if archive.is_empty() {
            return Err(ToolError::argument("archive", "it is empty"));
        }
        Ok((archive.len() <= INLINE_BYTES_MAX).then_some(archive))
    }
}

async fn unpack(
    mut writer: FileWriter<(u64, u64)>,
    archive: Vec<u8>,
) -> Result<(u64, u64), ToolError> {
    if archive.starts_with(&GZIP_MAGIC) {
        let mut gzip = MultiGzDecoder::new(archive.as_slice());
        loop {
            let piece = piece(&mut gzip)?;
            if piece.is_empty() {
                break;
            }
            writer.write(piece).await?;
        }
    } else {
        writer.write(Bytes::from(archive)).await?;
    }
    Ok(writer.finish().await?)
}

fn piece(gzip: &mut impl Read) -> Result<Bytes, ToolError> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    gzip.take(PIECE_BYTES as u64)
        .read_to_end(&mut piece)
        .map_err(|error| ToolError::argument("archive", format!("broken gzip: {error}")))?;
    Ok(Bytes::from(piece))
}

fn elsewhere(server: &Server, params: Params) -> Result<Answer, ToolError> {
    let query = [("path", params.dest.as_str())];
    let url = server
        .archive_url(&params.container_id, &query)
        .ok_or_else(|| {
            let message = format!("an archive given here may have {INLINE_BYTES_MAX} bytes");
            ToolError::new(Code::ResourceExhausted, message).with_hint(IN_PARTS)
        })?;
    let text = format!("PUT the tar or tar.gz to {url}\nwithout HTTP: {IN_PARTS}");
    let output = Output {
        dest: params.dest,
        entries: None,
        bytes: None,
        url: Some(url),
        next_step: Some(IN_PARTS),
    };
    Ok(Answer::of(text, output))
}

fn workspace() -> String {
    "/workspace".to_owned()
}
