//! The task that sends spans in batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prost::Message as _;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::exporter::{ExporterError, Item, Tally};
use crate::headers::Headers;
use crate::message::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use crate::span::Span;

/// Most spans per batch, and how long the first one waits for others.
const BATCH_SPANS_MAX: usize = 512;
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// Timeouts for connecting to a collector, and for its response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Attempts to send a batch, and the pause after the first; it doubles each time.
const ATTEMPTS_MAX: u32 = 3;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);

/// Most bytes of a collector's response that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const PROTOBUF: &str = "application/x-protobuf";

pub(crate) struct Sender {
    client: Client,
    url: Url,
    tally: Arc<Tally>,
    /// Whether the last batch was lost: only changes are logged.
    is_failing: bool,
}

/// Why a batch was not accepted.
enum Refusal {
    /// A temporary failure: it may be accepted later.
    Later(String),
    Never(String),
}

impl Sender {
    pub(crate) fn new(
        endpoint: &Endpoint,
        headers: &Headers,
        tally: Arc<Tally>,
    ) -> Result<Self, ExporterError> {
        // The first provider in the process is used; any of them would do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("hotcell/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers.map())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .pool_max_idle_per_host(1)
            .redirect(Policy::none());
        if endpoint.is_plain_http() {
            // Without TLS, loading this host's certificates would only waste memory.
            builder = builder.tls_certs_only([]);
        }
        Ok(Self {
            client: builder.build()?,
            url: endpoint.url().clone(),
            tally,
            is_failing: false,
        })
    }

    /// Sends until the last handle is gone and everything is sent.
    pub(crate) async fn run(mut self, mut items: mpsc::Receiver<Item>) {
        while let Some(first) = items.recv().await {
            let (batch, flushed) = gather(first, &mut items).await;
            if !batch.is_empty() {
                self.send(batch).await;
            }
            if let Some(flushed) = flushed {
                // The receiver may be gone.
                let _ = flushed.send(());
            }
        }
    }

    async fn send(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let body = ExportTraceServiceRequest::of(spans).encode_to_vec();
        let refused = match self.post_repeatedly(body).await {
            Ok(refused) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("traces are exported again");
                }
                refused.min(count)
            }
            Err(reason) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let url = &self.url;
                    tracing::warn!(%url, reason, "traces cannot be exported; they are dropped");
                }
                count
            }
        };
        self.tally.failed.fetch_add(refused, Ordering::Relaxed);
        let taken = count - refused;
        self.tally.exported.fetch_add(taken, Ordering::Relaxed);
    }

    /// Sends a batch, with retries; returns how many of its spans were rejected.
    async fn post_repeatedly(&self, body: Vec<u8>) -> Result<u64, String> {
        let mut pause = ATTEMPT_PAUSE;
        for _ in 1..ATTEMPTS_MAX {
            match self.post(body.clone()).await {
                Ok(refused) => return Ok(refused),
                Err(Refusal::Never(reason)) => return Err(reason),
                Err(Refusal::Later(_)) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
        self.post(body).await.map_err(|refusal| match refusal {
            Refusal::Later(reason) | Refusal::Never(reason) => reason,
        })
    }

    async fn post(&self, body: Vec<u8>) -> Result<u64, Refusal> {
        let request = self.client.post(self.url.clone()).body(body);
        let sent = request.header(CONTENT_TYPE, PROTOBUF).send().await;
        // Without the URL, which the operator knows.
        let mut answer = sent.map_err(|error| Refusal::Later(shown(&error.without_url())))?;
        let status = answer.status();
        if !status.is_success() {
            let reason = format!("the collector answers {status}");
            return Err(if may_work_later(status) {
                Refusal::Later(reason)
            } else {
                Refusal::Never(reason)
            });
        }
        let mut read = Vec::new();
        while let Ok(Some(piece)) = answer.chunk().await {
            if read.len() + piece.len() > ANSWER_BYTES_MAX {
                return Ok(0);
            }
            read.extend_from_slice(&piece);
        }
        // A collector that accepted everything may send an empty response.
        let told = ExportTraceServiceResponse::decode(&read[..]).unwrap_or_default();
        let rejected = told.partial_success.map_or(0, |part| part.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }
}

/// Whether OTLP allows a retry after this status.
fn may_work_later(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// Formats an error with its sources.
fn shown(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Collects spans that can be sent together with the first one.
async fn gather(
    first: Item,
    items: &mut mpsc::Receiver<Item>,
) -> (Vec<Span>, Option<oneshot::Sender<()>>) {
    let until = Instant::now() + BATCH_WAIT;
    let (mut batch, mut next) = (Vec::new(), Some(first));
    while let Some(item) = next {
        match item {
            Item::Span(span) => batch.push(*span),
            Item::Flush(flushed) => return (batch, Some(flushed)),
        }
        if batch.len() >= BATCH_SPANS_MAX {
            break;
        }
        let received = tokio::time::timeout_at(until, items.recv()).await;
        next = received.unwrap_or(None);
    }
    (batch, None)
}
