//! Argument types that several tools share.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::{ContainerRef, Env, ExecId, Labels, Name};
use hotcell_service::{FilePath, Precondition, default_session};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::ToolError;

/// The largest file content in a tool's arguments or answer.
pub(super) const INLINE_BYTES_MAX: usize = 4 << 20;

/// A value that may be given as a number or as a text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(transform = quantity)]
pub(super) enum Quantity {
    Number(serde_json::Number),
    Text(String),
}

// Not a doc comment: that would be sent to clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

impl Quantity {
    /// As a text, for the domain's parsers.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Encoding {
    /// Decodes the content of an argument.
    pub(super) fn decode(self, name: &str, content: String) -> Result<Vec<u8>, ToolError> {
        let bytes = match self {
            Self::Utf8 => content.into_bytes(),
            Self::Base64 => BASE64_STANDARD
                .decode(content.trim_ascii())
                .map_err(|error| ToolError::argument(name, format!("not base64: {error}")))?,
        };
        if bytes.len() > INLINE_BYTES_MAX {
            return Err(too_large());
        }
        Ok(bytes)
    }
}

fn too_large() -> ToolError {
    ToolError::invalid(format!("content may have {INLINE_BYTES_MAX} bytes"))
        .with_hint("write it in parts with append=true, or use fs_import")
}

fn quantity(schema: &mut schemars::Schema) {
    *schema = schemars::json_schema!({"type": ["string", "number"]});
}

/// Parses a container id or alias. An invalid one is reported as not found.
pub(crate) fn container_ref(text: &str) -> Result<ContainerRef, ToolError> {
    ContainerRef::parse(text).ok_or_else(|| ToolError::not_found("container", text))
}

/// Parses an exec id. An invalid one is reported as not found.
pub(crate) fn exec_id(text: &str) -> Result<ExecId, ToolError> {
    ExecId::parse(text).map_err(|_| ToolError::not_found("exec", text))
}

pub(crate) fn file_path(path: &[u8]) -> Result<FilePath, ToolError> {
    Ok(FilePath::parse(path)?)
}

pub(super) fn name(argument: &str, text: &str) -> Result<Name, ToolError> {
    Name::parse(text).map_err(|error| ToolError::argument(argument, error))
}

pub(super) fn key(text: Option<&str>) -> Result<Option<Name>, ToolError> {
    text.map(|text| name("idempotency_key", text)).transpose()
}

/// The session that a caller names, or its default one.
pub(super) fn session(text: Option<&str>) -> Result<Name, ToolError> {
    text.map_or_else(|| Ok(default_session()), |text| name("session", text))
}

pub(super) fn env(variables: &BTreeMap<String, String>) -> Result<Env, ToolError> {
    let mut env = Env::default();
    for (name, value) in variables {
        env.set(name, value)
            .map_err(|error| ToolError::argument("env", error))?;
    }
    Ok(env)
}

pub(super) fn labels(given: &BTreeMap<String, String>) -> Result<Labels, ToolError> {
    let mut labels = Labels::default();
    for (name, value) in given {
        labels
            .set(name, value)
            .map_err(|error| ToolError::argument("labels", error))?;
    }
    Ok(labels)
}

/// A precondition by etag. An etag that cannot be one of ours matches nothing and leads to the
/// usual conflict.
pub(super) fn if_match(etag: Option<String>) -> Precondition {
    etag.map_or(Precondition::Any, Precondition::Matches)
}
