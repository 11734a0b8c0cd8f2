//! `fs_export`: a directory as a tar.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use hotcell_service::FileReader;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::INLINE_BYTES_MAX;
use super::{Answer, Code, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct FsExport;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    container_id: String,
    #[serde(default = "workspace")]
    path: String,
    /// Globs
    #[serde(default)]
    #[schemars(extend("default" = null))]
    include: Vec<String>,
    /// Globs
    #[serde(default)]
    #[schemars(extend("default" = null))]
    exclude: Vec<String>,
    #[serde(default = "yes")]
    gzip: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    hint: Option<&'static str>,
}

/// How a client without HTTP gets what is too large for an answer.
const IN_PARTS: &str = "pack it inside, such as exec_start cmd=[\"tar\",\"czf\",\"export.tgz\",\"DIR\"], \
    then fs_read export.tgz with limit=4194304 and go on with offset=next_offset";

impl Tool for FsExport {
    const NAME: &'static str = "fs_export";
    const DESCRIPTION: &'static str =
        "Get a file or directory as a tar: base64 up to 4 MiB, else a URL to GET.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let path = super::file_path(params.path.as_bytes())?;
        let (include, exclude) = (params.include.clone(), params.exclude.clone());
        let service = server.service();
        let exporting = async {
            call.room(INLINE_BYTES_MAX).await?;
            let reader = service
                .file_export(&call.caller, &target, &path, include, exclude)
                .await?;
            pack(reader, params.gzip).await
        };
        let archive = call.attend("packing", exporting).await??;
        match archive {
            Some(archive) => Ok(inline(&params, &archive)),
            None => elsewhere(server, &params),
        }
    }
}

/// The archive, or nothing if it is too large to travel here.
async fn pack(mut reader: FileReader, gzip: bool) -> Result<Option<Vec<u8>>, ToolError> {
    let level = if gzip {
        Compression::fast()
    } else {
        Compression::none()
    };
    let mut packed = GzEncoder::new(Vec::new(), level);
    let mut plain = Vec::new();
    while let Some(data) = reader.next().await? {
        if gzip {
            packed.write_all(&data).expect("memory takes all");
        } else {
            plain.extend_from_slice(&data);
        }
        if packed.get_ref().len().max(plain.len()) > INLINE_BYTES_MAX {
            return Ok(None);
        }
    }
    let archive = if gzip {
        packed.finish().expect("memory takes all")
    } else {
        plain
    };
    Ok((archive.len() <= INLINE_BYTES_MAX).then_some(archive))
}

fn inline(params: &Params, archive: &[u8]) -> Answer {
    let output = Output {
        format: params.format(),
        size: Some(archive.len()),
        archive: Some(BASE64_STANDARD.encode(archive)),
        url: None,
        hint: None,
    };
    let text = format!(
        "{}, {} bytes; structured content has it as base64",
        output.format,
        archive.len()
    );
    Answer::of(text, output)
}

fn elsewhere(server: &Server, params: &Params) -> Result<Answer, ToolError> {
    let mut query = vec![("path", params.path.as_str())];
    query.extend(params.include.iter().map(|glob| ("include", glob.as_str())));
    query.extend(params.exclude.iter().map(|glob| ("exclude", glob.as_str())));
    query.push(("gzip", if params.gzip { "true" } else { "false" }));
    let url = server.archive_url(&params.container_id, &query).ok_or_else(|| {
        let message = format!("the archive has more than {INLINE_BYTES_MAX} bytes, the most that fits into an answer");
        ToolError::new(Code::ResourceExhausted, message).with_hint(IN_PARTS)
    })?;
    let text = format!("too large to show here; GET {url}\nwithout HTTP: {IN_PARTS}");
    let output = Output {
        format: params.format(),
        size: None,
        archive: None,
        url: Some(url),
        hint: Some(IN_PARTS),
    };
    Ok(Answer::of(text, output))
}

impl Params {
    fn format(&self) -> &'static str {
        if self.gzip { "tar.gz" } else { "tar" }
    }
}

fn workspace() -> String {
    "/workspace".to_owned()
}

fn yes() -> bool {
    true
}
