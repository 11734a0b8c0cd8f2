//! Traces: the steps of operations with their durations, sent to an OpenTelemetry collector.
//!
//! ```text
//! operation ends ─▶ record: a queue with a bound ─▶ one task: batches ─▶ POST /v1/traces (OTLP, protobuf)
//!                      └─ full: dropped, counted          └─ collector away: tried again, then dropped, counted
//! ```
//!
//! Nothing waits for a collector: [`Exporter::record`] never blocks, and spans that cannot be
//! delivered are counted and dropped. The messages are the part of OTLP that we need, with the
//! field numbers of its `.proto` files ([ADR 20](../../../docs/adr/0020-our-own-otlp-exporter.md)).

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod batch;
mod endpoint;
mod exporter;
mod headers;
mod message;
mod span;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, ExporterError, SpanCounts};
pub use headers::{Headers, HeadersError};
pub use span::{Span, SpanKind};
