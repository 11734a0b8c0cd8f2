//! The handle that records spans, and what becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::batch::Sender;
use crate::endpoint::Endpoint;
use crate::span::Span;

/// Spans that wait to be sent. One more is dropped.
const QUEUE_SPANS_MAX: usize = 2048;

/// Why there can be no exporter.
#[derive(Debug, thiserror::Error)]
#[error("could not make an HTTP client for traces")]
pub struct ExporterError(#[from] pub(crate) reqwest::Error);

/// Sends spans to a collector. Clones share it; when the last is dropped, the task ends with what
/// it has.
#[derive(Debug, Clone)]
pub struct Exporter {
    queue: mpsc::Sender<Item>,
    tally: Arc<Tally>,
}

/// What became of spans, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector took them.
    pub exported: u64,
    /// They found the queue full.
    pub dropped: u64,
    /// The collector could not be reached, or refused them.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// What the task is given.
#[derive(Debug)]
pub(crate) enum Item {
    Span(Box<Span>),
    /// Send everything before, then say so.
    Flush(oneshot::Sender<()>),
}

impl Exporter {
    /// Starts the task that sends. Needs a tokio runtime. The collector need not be there.
    pub fn start(endpoint: &Endpoint) -> Result<Self, ExporterError> {
        let (queue, items) = mpsc::channel(QUEUE_SPANS_MAX);
        let tally = Arc::new(Tally::default());
        let sender = Sender::new(endpoint, Arc::clone(&tally))?;
        tokio::spawn(sender.run(items));
        Ok(Self { queue, tally })
    }

    /// Has a span sent, or counts it as dropped. Never waits.
    pub fn record(&self, span: Span) {
        if self.queue.try_send(Item::Span(Box::new(span))).is_err() {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of the spans so far.
    pub fn counts(&self) -> SpanCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpanCounts {
            exported: count(&self.tally.exported),
            dropped: count(&self.tally.dropped),
            failed: count(&self.tally.failed),
        }
    }

    /// Waits until what was recorded before is sent or given up, or until `wait_max` is over.
    /// Answers whether it came to the end.
    pub async fn flush(&self, wait_max: Duration) -> bool {
        let flush = async {
            let (done, is_done) = oneshot::channel();
            self.queue.send(Item::Flush(done)).await.is_ok() && is_done.await.is_ok()
        };
        tokio::time::timeout(wait_max, flush).await.unwrap_or(false)
    }
}
