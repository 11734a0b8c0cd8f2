//! The messages of OTLP that we send and receive. Names and numbers are those of
//! `opentelemetry/proto/{common,resource,trace}/v1` and `collector/trace/v1`; a test decodes ours by
//! these files.

use prost::{Message, Oneof};

use crate::span::{Span as Recorded, SpanKind, VALUE_BYTES_MAX};

const KIND_INTERNAL: i32 = 1;
const KIND_SERVER: i32 = 2;
const STATUS_ERROR: i32 = 2;

/// The lowest bit of the W3C trace flags.
const FLAG_SAMPLED: u32 = 0x001;
/// The parent span is known to be in another process.
const FLAGS_REMOTE_IS_KNOWN: u32 = 0x100;
const FLAG_PARENT_IS_REMOTE: u32 = 0x200;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[expect(
    clippy::struct_field_names,
    reason = "the names of the protocol are kept"
)]
#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    String(String),
}

impl ExportTraceServiceRequest {
    pub(crate) fn of(spans: Vec<Recorded>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let about_us = [("service.name", "hotcell"), ("service.version", version)];
        let resource = Resource {
            attributes: about_us.map(|(key, value)| attribute(key, value)).into(),
        };
        let scope = InstrumentationScope {
            name: "hotcell".to_owned(),
            version: version.to_owned(),
        };
        let scope_spans = ScopeSpans {
            scope: Some(scope),
            spans: spans.into_iter().map(Span::of).collect(),
        };
        Self {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource),
                scope_spans: vec![scope_spans],
            }],
        }
    }
}

impl Span {
    fn of(span: Recorded) -> Self {
        let parent_span_id = if span.parent_id == [0; 8] {
            Vec::new()
        } else {
            span.parent_id.to_vec()
        };
        let remote = if span.has_remote_parent {
            FLAG_PARENT_IS_REMOTE
        } else {
            0
        };
        let attributes = span.attributes.iter();
        Self {
            trace_id: span.trace_id.as_bytes().to_vec(),
            span_id: span.span_id.to_vec(),
            parent_span_id,
            name: span.name.into_owned(),
            kind: match span.kind {
                SpanKind::Server => KIND_SERVER,
                SpanKind::Internal => KIND_INTERNAL,
            },
            start_time_unix_nano: span.start_unix_ns,
            end_time_unix_nano: span.end_unix_ns.max(span.start_unix_ns),
            attributes: attributes
                .map(|(key, value)| attribute(key, value))
                .collect(),
            status: span.is_error.then_some(Status { code: STATUS_ERROR }),
            flags: FLAG_SAMPLED | FLAGS_REMOTE_IS_KNOWN | remote,
        }
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let end = value.floor_char_boundary(VALUE_BYTES_MAX);
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::String(value[..end].to_owned())),
        }),
    }
}
