//! Why a request of a script was not done, as the script sees it.

use std::fmt;

/// Characters of a message.
const MESSAGE_CHARS_MAX: usize = 4096;

/// A stable word and a sentence: `MCPError.code` and `MCPError.message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One of the codes of the tools, or `tool_error`.
    pub code: &'static str,
    /// Fit for a model: no secrets, no host paths.
    pub message: String,
}

impl Failure {
    /// A failure; long messages are cut.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
        }
        Self { code, message }
    }

    /// Policy forbids it.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new("denied", message)
    }

    /// The request makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("invalid_argument", message)
    }

    /// It is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new("not_found", message)
    }

    /// A budget is used up.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new("resource_exhausted", message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}
