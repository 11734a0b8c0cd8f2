//! What a tool answers when it did its work.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

/// What an answer carries at most, where its caller names no other bound: each rendering for
/// itself, before JSON escapes it.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Structured content and a text. Many clients show a model only one of the two, so each has
/// all it needs to go on. A picture has no structured content beside it: clients that prefer
/// that would drop the picture.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    structured: Option<Value>,
    image: Option<(String, &'static str)>,
    /// The exec it is about, if that goes on and the client could take a task instead.
    pub(crate) task: Option<rmcp::model::Task>,
}

/// Of a list that grows at its end, how many at its begin do not fit into an answer.
pub(super) fn fitting(sizes: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) -> usize {
    let (count, mut left) = (sizes.len(), ANSWER_BYTES_MAX);
    let fitting = sizes.rev().take_while(|size| {
        let fits = *size <= left;
        left = left.saturating_sub(*size);
        fits
    });
    count - fitting.count()
}

/// What something takes as JSON.
pub(super) fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

impl Answer {
    /// An answer; `structured` is an object.
    pub(crate) fn new(text: impl Into<String>, structured: Value) -> Self {
        Self {
            text: text.into(),
            structured: Some(structured),
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

    /// A picture, as base64 and its type, and what is said of it.
    pub(crate) fn picture(text: impl Into<String>, base64: String, mime: &'static str) -> Self {
        Self {
            text: text.into(),
            structured: None,
            image: Some((base64, mime)),
            task: None,
        }
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
        result.structured_content = answer.structured;
        result
    }
}
