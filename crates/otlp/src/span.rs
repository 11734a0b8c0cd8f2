//! A span: something that was done, from when to when.

use std::borrow::Cow;

use hotcell_domain::TraceId;

/// Of a longer value of an attribute, this much is sent.
pub(crate) const VALUE_BYTES_MAX: usize = 256;

/// Something that was done as a part of a trace.
#[derive(Debug, Clone)]
pub struct Span {
    /// The trace.
    pub trace_id: TraceId,
    /// This span.
    pub span_id: [u8; 8],
    /// The span that it is a part of; zeros if the trace begins with it.
    pub parent_id: [u8; 8],
    /// Whether its parent belongs to another program.
    pub has_remote_parent: bool,
    /// What was done.
    pub name: Cow<'static, str>,
    /// Whether a caller asked for it.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When it was over.
    pub end_unix_ns: u64,
    /// More about it: words and numbers that are no secrets.
    pub attributes: Vec<(&'static str, String)>,
    /// Whether it failed.
    pub is_error: bool,
}

/// Whose work a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// An answer to a caller.
    Server,
    /// A step on the way.
    Internal,
}
