//! Limits of the HTTP server: connections, requests, bodies, sessions.

use std::time::Duration;

use hotcell_mcp::transport::MESSAGE_BYTES_MAX;

use crate::pace::PaceLimits;

/// Messages of one batch that are handled concurrently.
pub(crate) const BATCH_AT_ONCE_MAX: usize = 4;

/// Total size of the answers to one batch.
pub(crate) const BATCH_ANSWER_BYTES_MAX: usize = 32 << 20;

/// Size of a request's first line and headers.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

/// Number of headers of a request.
pub(crate) const HEADERS_MAX: usize = 100;

/// Messages buffered between a legacy SSE session and its HTTP requests.
pub(crate) const SSE_QUEUE_MAX: usize = 16;

/// This much of a body is always read; the rest shares [`HttpLimits::bodies_bytes_max`].
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// How long a session keeps sent small answers, for a client whose connection broke.
pub(crate) const SENT_KEPT_MAX: Duration = Duration::from_secs(10);

/// The `Retry-After` of a 503.
pub(crate) const RETRY_AFTER_S: u32 = 1;

/// Limits of the HTTP server.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Open connections; another one is closed at once.
    pub connections_max: usize,
    /// Requests whose response has not started; another one is answered with 503.
    pub requests_max: usize,
    /// Requests in all sessions that are being answered; their HTTP connections may be closed
    /// already.
    pub session_requests_max: usize,
    /// Size of a JSON body.
    pub body_bytes_max: usize,
    /// Memory for all JSON bodies beyond the small beginning of each. A body uses its share as it
    /// arrives.
    pub bodies_bytes_max: usize,
    /// How long a request head may take, which also limits idle connections.
    pub head_timeout: Duration,
    /// How long a JSON body may take.
    pub body_timeout: Duration,
    /// How long a JSON body may take beyond what `body_bytes_per_s_min` allows.
    pub body_grace: Duration,
    /// The minimum rate of a body or an upload.
    pub body_bytes_per_s_min: u32,
    /// How long a JSON body may wait for its share of `bodies_bytes_max`.
    pub bodies_wait_timeout: Duration,
    /// How long an upload may pause.
    pub upload_idle_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_idle_timeout: Duration,
    /// Streamable HTTP sessions. For another one, a session of the principal that has most is
    /// closed, the one idle for longest; if all have an open stream and nobody has two more than
    /// the caller, it is refused with 503.
    pub sessions_max: usize,
    /// How long a session without an open stream is kept.
    pub session_idle_timeout: Duration,
    /// Legacy SSE sessions. For another one, the oldest of the principal that has most is closed,
    /// if that one has two more than the caller; otherwise it is refused with 503.
    pub sse_sessions_max: usize,
    /// How often a silent stream sends a keep-alive.
    pub keep_alive_interval: Duration,
    /// How long requests may continue once the server stops.
    pub stop_grace: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            requests_max: 512,
            session_requests_max: 2048,
            body_bytes_max: MESSAGE_BYTES_MAX,
            bodies_bytes_max: 4 * MESSAGE_BYTES_MAX,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            body_grace: Duration::from_secs(5),
            body_bytes_per_s_min: 4 << 10,
            bodies_wait_timeout: Duration::from_secs(10),
            upload_idle_timeout: Duration::from_secs(30),
            write_idle_timeout: Duration::from_mins(1),
            sessions_max: 1024,
            session_idle_timeout: Duration::from_mins(30),
            sse_sessions_max: 256,
            keep_alive_interval: Duration::from_secs(15),
            stop_grace: Duration::from_secs(5),
        }
    }
}

impl HttpLimits {
    pub(crate) fn body_pace(&self) -> PaceLimits {
        PaceLimits {
            grace: self.body_grace,
            bytes_per_s_min: self.body_bytes_per_s_min,
            pause_max: self.body_timeout,
            total_max: self.body_timeout,
        }
    }

    /// Uploads have no total timeout.
    pub(crate) fn upload_pace(&self) -> PaceLimits {
        PaceLimits {
            grace: self.upload_idle_timeout,
            bytes_per_s_min: self.body_bytes_per_s_min,
            pause_max: self.upload_idle_timeout,
            total_max: Duration::MAX,
        }
    }
}
