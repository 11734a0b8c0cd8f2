//! The handle that records spans, and counts what happens to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::batch::Sender;
use crate::endpoint::Endpoint;
use crate::headers::Headers;
use crate::span::Span;

/// Most spans waiting to be sent. Further ones are dropped.
const QUEUE_SPANS_MAX: usize = 2048;

/// Why the exporter could not be started.
#[derive(Debug, thiserror::Error)]
#[error("could not make an HTTP client for traces")]
pub struct ExporterError(#[from] pub(crate) reqwest::Error);

/// Sends spans to a collector. Clones share it; when the last one is dropped, the task sends the
/// remaining spans and ends.
#[derive(Debug, Clone)]
pub struct Exporter {
    queue: mpsc::Sender<Item>,
    tally: Arc<Tally>,
}

/// Spans since the start, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Accepted by the collector.
    pub exported: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Not sent because the collector could not be reached or rejected them.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// An item for the task.
#[derive(Debug)]
pub(crate) enum Item {
    Span(Box<Span>),
    /// Send all earlier spans, then notify.
    Flush(oneshot::Sender<()>),
}

impl Exporter {
    /// Starts the task, which sends these headers with each request. Needs a tokio runtime. The
    /// collector need not be reachable.
    pub fn start(endpoint: &Endpoint, headers: &Headers) -> Result<Self, ExporterError> {
        let (queue, items) = mpsc::channel(QUEUE_SPANS_MAX);
        let tally = Arc::new(Tally::default());
        let sender = Sender::new(endpoint, headers, Arc::clone(&tally))?;
        tokio::spawn(sender.run(items));
        Ok(Self { queue, tally })
    }

    /// Queues a span, or counts it as dropped. Never blocks.
    pub fn record(&self, span: Span) {
        if self.queue.try_send(Item::Span(Box::new(span))).is_err() {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> SpanCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpanCounts {
            exported: count(&self.tally.exported),
            dropped: count(&self.tally.dropped),
            failed: count(&self.tally.failed),
        }
    }

    /// Waits until all recorded spans are sent or given up, for at most `wait_max`. Returns whether
    /// that happened in time.
    pub async fn flush(&self, wait_max: Duration) -> bool {
        let flush = async {
            let (done, is_done) = oneshot::channel();
            self.queue.send(Item::Flush(done)).await.is_ok() && is_done.await.is_ok()
        };
        tokio::time::timeout(wait_max, flush).await.unwrap_or(false)
    }
}
