//! The span of an operation, and those of its steps.
//!
//! The context of an operation is a task-local, so that engine, store and agent connections find it
//! without a parameter. Other tasks inherit it through [`carried`]. After the operation has ended,
//! steps are no longer recorded.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hotcell_domain::TraceContext;
use hotcell_otlp::{Exporter, Span, SpanKind};
use tokio::time::Instant;

/// Most steps recorded per operation: a long one would fill the queue alone.
const STEPS_MAX: u64 = 64;

tokio::task_local! {
    static CURRENT: Option<Arc<OperationSpan>>;
}

/// The span of a running operation.
#[derive(Debug)]
pub(crate) struct OperationSpan {
    exporter: Exporter,
    trace: TraceContext,
    id: [u8; 8],
    /// When it began: monotonic and wall-clock time.
    began: Instant,
    began_unix_ns: u64,
    steps: AtomicU64,
    is_over: AtomicBool,
}

impl OperationSpan {
    /// Begins a span, unless the caller's trace is not sampled.
    pub(crate) fn begin(
        exporter: &Exporter,
        trace: TraceContext,
        random: [u8; 8],
        unix_ms: u64,
    ) -> Option<Arc<Self>> {
        if !trace.is_sampled && !trace.is_new() {
            return None;
        }
        Some(Arc::new(Self {
            exporter: exporter.clone(),
            trace,
            // All zeros would be an invalid id.
            id: (u64::from_be_bytes(random) | 1).to_be_bytes(),
            began: Instant::now(),
            began_unix_ns: unix_ms.saturating_mul(1_000_000),
            steps: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }))
    }

    /// Ends the span. Later steps do not belong to it any more.
    pub(crate) fn end(
        &self,
        name: &'static str,
        is_error: bool,
        attributes: Vec<(&'static str, String)>,
    ) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.exporter.record(Span {
            trace_id: self.trace.trace_id,
            span_id: self.id,
            parent_id: self.trace.parent_id,
            has_remote_parent: !self.trace.is_new(),
            name: name.into(),
            kind: SpanKind::Server,
            start_unix_ns: self.began_unix_ns,
            end_unix_ns: self.unix_ns(Instant::now()),
            attributes,
            is_error,
        });
    }

    fn step(&self, name: String, duration: Duration, is_ok: bool) {
        let number = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        if number > STEPS_MAX || self.is_over.load(Ordering::Acquire) {
            return;
        }
        let end_unix_ns = self.unix_ns(Instant::now());
        let id = u64::from_be_bytes(self.id).wrapping_add(number << 1);
        self.exporter.record(Span {
            trace_id: self.trace.trace_id,
            span_id: id.to_be_bytes(),
            parent_id: self.id,
            has_remote_parent: false,
            name: name.into(),
            kind: SpanKind::Internal,
            start_unix_ns: end_unix_ns.saturating_sub(nanos(duration)),
            end_unix_ns,
            attributes: Vec::new(),
            is_error: !is_ok,
        });
    }

    fn unix_ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        self.began_unix_ns.saturating_add(nanos(since))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs work as a part of an operation.
pub(crate) fn within<F: Future>(
    span: Option<Arc<OperationSpan>>,
    work: F,
) -> impl Future<Output = F::Output> {
    CURRENT.scope(span, work)
}

/// Lets work in another task be a part of the current operation.
pub(crate) fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let current = CURRENT.try_with(Clone::clone).ok().flatten();
    within(current, work)
}

/// Records a step of the current operation that has just ended: a part of the server and what it
/// did.
pub(crate) fn step(part: &'static str, what: &'static str, duration: Duration, is_ok: bool) {
    let _ = CURRENT.try_with(|current| {
        if let Some(span) = current {
            span.step(
                format!("{part}.{}", what.replace(' ', "_")),
                duration,
                is_ok,
            );
        }
    });
}
