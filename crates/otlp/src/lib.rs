//! Traces: what an operation did and how long each step took, sent to an OpenTelemetry collector.
//!
//! ```text
//! operation ends ─▶ record: a queue with a bound ─▶ one task: batches ─▶ POST /v1/traces (OTLP, protobuf)
//!                      └─ full: dropped, counted          └─ collector away: tried again, then dropped, counted
//! ```
//!
//! Nobody waits for a collector: [`Exporter::record`] never blocks, and what cannot be delivered is
//! counted and forgotten. The messages are the part of OTLP that we send, in the numbers of its
//! `.proto` files ([ADR 20](../../../docs/adr/0020-our-own-otlp-exporter.md)).

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod batch;
mod endpoint;
mod exporter;
mod message;
mod span;

pub use endpoint::{Endpoint, EndpointError};
pub use exporter::{Exporter, ExporterError, SpanCounts};
pub use span::{Span, SpanKind};
