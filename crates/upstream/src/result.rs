//! What a server answers, in our own types.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a tool answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// Structured content, if there is any: JSON text that was checked, not yet parsed.
    #[serde(
        rename = "structuredContent",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub structured: Option<Box<RawValue>>,
    /// Content for people and models.
    #[serde(default)]
    pub content: Vec<Content>,
    /// Whether the tool says that it failed.
    #[serde(default)]
    pub is_error: bool,
}

/// A piece of content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image(Blob),
    /// A recording.
    Audio(Blob),
    /// A resource, with its content.
    Resource {
        /// The resource.
        resource: ResourceBody,
    },
    /// A resource that may be read.
    ResourceLink(Resource),
    /// Something that we do not know.
    #[serde(other)]
    Unknown,
}

/// Bytes, as base64.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blob {
    /// Base64, unchecked.
    pub data: String,
    /// What they are.
    pub mime_type: String,
}

/// A resource without its content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Its address.
    pub uri: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What its bytes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// A resource with its content: text, or base64.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBody {
    /// Its address.
    pub uri: String,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes, as base64, unchecked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// A prompt that may be had.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, as the server describes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
}

/// A message of a prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PromptMessage {
    /// `user` or `assistant`.
    pub role: String,
    /// What it says.
    pub content: Content,
}
