//! A tool's answer.

use rmcp::model::{CallToolResult, ContentBlock, InputRequiredResult, Resource};
use serde::Serialize;
use serde_json::Value;

/// The default limit of an answer: for each rendering separately, before JSON escaping.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Structured content and a text. Many clients show a model only one of them, so each is complete.
/// A picture has no structured content beside it: clients that prefer structured content would drop
/// the picture.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    structured: Option<Value>,
    /// Pictures as base64, each with its type.
    images: Vec<(String, &'static str)>,
    links: Vec<Resource>,
    /// The exec, if it is still running and the client accepts a task instead.
    pub(crate) task: Option<rmcp::model::Task>,
    /// What the client is asked for instead of an answer.
    pub(crate) input: Option<Box<InputRequiredResult>>,
}

/// How many entries at the start of a list must be omitted so that the rest fits.
pub(super) fn fitting(sizes: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) -> usize {
    let (count, mut left) = (sizes.len(), ANSWER_BYTES_MAX);
    let fitting = sizes.rev().take_while(|size| {
        let fits = *size <= left;
        left = left.saturating_sub(*size);
        fits
    });
    count - fitting.count()
}

/// The size of a value as JSON.
pub(super) fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

impl Answer {
    /// `structured` must be an object.
    pub(crate) fn new(text: impl Into<String>, structured: Value) -> Self {
        Self {
            text: text.into(),
            structured: Some(structured),
            images: Vec::new(),
            links: Vec::new(),
            task: None,
            input: None,
        }
    }

    pub(crate) fn of(text: impl Into<String>, structured: impl Serialize) -> Self {
        let structured = serde_json::to_value(structured)
            .expect("our types have string keys and no failing serialisation");
        Self::new(text, structured)
    }

    /// No answer yet: the client has to repeat its request with some input.
    pub(crate) fn needs(input: InputRequiredResult) -> Self {
        let mut this = Self::new("", Value::Null);
        this.input = Some(Box::new(input));
        this
    }

    /// A picture as base64, with a text.
    pub(crate) fn picture(text: impl Into<String>, base64: String, mime: &'static str) -> Self {
        Self::new(text, Value::Null).with_pictures(vec![(base64, mime)])
    }

    /// Adds pictures, if there are any, in place of the structured content.
    pub(crate) fn with_pictures(mut self, pictures: Vec<(String, &'static str)>) -> Self {
        if !pictures.is_empty() {
            self.structured = None;
            self.images = pictures;
        }
        self
    }

    /// Adds files that a client can read as resources.
    pub(crate) fn with_links(mut self, links: Vec<Resource>) -> Self {
        self.links = links;
        self
    }

    pub(crate) fn with_task(mut self, task: rmcp::model::Task) -> Self {
        self.task = Some(task);
        self
    }
}

impl From<Answer> for CallToolResult {
    fn from(answer: Answer) -> Self {
        let mut content = vec![ContentBlock::text(answer.text)];
        let images = answer.images.into_iter();
        content.extend(images.map(|(data, mime)| ContentBlock::image(data, mime)));
        let links = answer.links.into_iter();
        content.extend(links.map(ContentBlock::resource_link));
        let mut result = Self::success(content);
        result.structured_content = answer.structured;
        result
    }
}
