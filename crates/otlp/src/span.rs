//! A span: one step of an operation, with start and end.

use std::borrow::Cow;

use hotcell_domain::TraceId;

/// Longer attribute values are truncated to this.
pub(crate) const VALUE_BYTES_MAX: usize = 256;

/// A part of a trace.
#[derive(Debug, Clone)]
pub struct Span {
    /// The trace that the span belongs to.
    pub trace_id: TraceId,
    /// The id of this span.
    pub span_id: [u8; 8],
    /// The parent span; zeros if the trace begins with this one.
    pub parent_id: [u8; 8],
    /// Whether the parent span is in another process.
    pub has_remote_parent: bool,
    /// The name of the operation or step.
    pub name: Cow<'static, str>,
    /// Whether a caller requested it.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When it ended.
    pub end_unix_ns: u64,
    /// Attributes, which must not contain secrets.
    pub attributes: Vec<(&'static str, String)>,
    /// Whether it failed.
    pub is_error: bool,
}

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Handles a caller's request.
    Server,
    /// An internal step.
    Internal,
}
