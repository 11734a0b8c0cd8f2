//! What a tool answers when it did its work.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

/// Structured content for programs, and a text, because many clients show a model only
/// that.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    structured: Value,
    image: Option<(String, &'static str)>,
    /// The exec it is about, if that goes on and the client could take a task instead.
    pub(crate) task: Option<rmcp::model::Task>,
}

impl Answer {
    /// An answer; `structured` is an object.
    pub(crate) fn new(text: impl Into<String>, structured: Value) -> Self {
        Self {
            text: text.into(),
            structured,
            image: None,
            task: None,
        }
    }

    /// An answer made of a type of ours.
    pub(crate) fn of(text: impl Into<String>, structured: impl Serialize) -> Self {
        let structured = serde_json::to_value(structured)
            .expect("our types have string keys and no failing serialisation");
        Self::new(text, structured)
    }

    /// With a picture: base64 and its type.
    pub(crate) fn with_image(mut self, base64: String, mime: &'static str) -> Self {
        self.image = Some((base64, mime));
        self
    }

    /// To be answered as a task.
    pub(crate) fn with_task(mut self, task: rmcp::model::Task) -> Self {
        self.task = Some(task);
        self
    }
}

impl From<Answer> for CallToolResult {
    fn from(answer: Answer) -> Self {
        let mut content = vec![ContentBlock::text(answer.text)];
        content.extend(
            answer
                .image
                .map(|(data, mime)| ContentBlock::image(data, mime)),
        );
        let mut result = Self::success(content);
        result.structured_content = Some(answer.structured);
        result
    }
}
