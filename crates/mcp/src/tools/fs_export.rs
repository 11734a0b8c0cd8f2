//! `fs_export`: a directory as a tar.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use hotcell_service::FileReader;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::ANSWER_BYTES_MAX;
use super::arguments::INLINE_BYTES_MAX;
use super::{Answer, Code, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct FsExport;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// File or directory
    #[serde(default = "workspace")]
    path: String,
    /// Globs of what is packed
    #[serde(default)]
    #[schemars(extend("default" = null))]
    include: Vec<String>,
    /// Globs of what is not; both together at most 64
    #[serde(default)]
    #[schemars(extend("default" = null))]
    exclude: Vec<String>,
    /// Compress it
    #[serde(default = "yes")]
    gzip: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    /// base64
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<String>,
    /// Where to GET it
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<&'static str>,
}

/// How a client without HTTP gets an archive that is too large for an answer.
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
            Some(archive) => Ok(inline(server, &params, &archive)),
            None => elsewhere(server, &params),
        }
    }
}

/// The archive, or `None` if it is too large for an answer.
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

/// The structured content has the whole archive, for programs. The text has it only if it is short
/// enough for a model; else it says how to get it.
fn inline(server: &Server, params: &Params, archive: &[u8]) -> Answer {
    let (format, size) = (params.format(), archive.len());
    let base64 = BASE64_STANDARD.encode(archive);
    let url = (base64.len() > ANSWER_BYTES_MAX)
        .then(|| params.url(server))
        .flatten();
    let text = match &url {
        _ if base64.len() <= ANSWER_BYTES_MAX => {
            format!("{format}, {size} bytes, base64:\n{base64}")
        }
        Some(url) => format!("{format}, {size} bytes, too long for a text: GET {url}"),
        None => format!("{format}, {size} bytes, too long for a text: {IN_PARTS}"),
    };
    let output = Output {
        format,
        size: Some(size),
        archive: Some(base64),
        url,
        next_step: None,
    };
    Answer::of(text, output)
}

fn elsewhere(server: &Server, params: &Params) -> Result<Answer, ToolError> {
    let url = params.url(server).ok_or_else(|| {
        let message = format!(
            "the archive has more than {INLINE_BYTES_MAX} bytes, the most that fits into an answer"
        );
        ToolError::new(Code::ResourceExhausted, message).with_hint(IN_PARTS)
    })?;
    let text = format!("too large to show here; GET {url}\nwithout HTTP: {IN_PARTS}");
    let output = Output {
        format: params.format(),
        size: None,
        archive: None,
        url: Some(url),
        next_step: Some(IN_PARTS),
    };
    Ok(Answer::of(text, output))
}

impl Params {
    /// The URL of the same archive, if there is HTTP.
    fn url(&self, server: &Server) -> Option<String> {
        let mut query = vec![("path", self.path.as_str())];
        query.extend(self.include.iter().map(|glob| ("include", glob.as_str())));
        query.extend(self.exclude.iter().map(|glob| ("exclude", glob.as_str())));
        query.push(("gzip", if self.gzip { "true" } else { "false" }));
        server.archive_url(&self.container_id, &query)
    }

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
