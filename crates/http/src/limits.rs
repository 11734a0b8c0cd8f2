//! The bounds of HTTP: connections, requests, bodies, sessions.

use std::time::Duration;

use hotcell_mcp::transport::MESSAGE_BYTES_MAX;

use crate::pace::PaceLimits;

/// Messages of one batch over HTTP that are handled at once.
pub(crate) const BATCH_AT_ONCE_MAX: usize = 4;

/// All answers to one batch over HTTP.
pub(crate) const BATCH_ANSWER_BYTES_MAX: usize = 32 << 20;

/// The head of an HTTP request: its first line and its headers.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

/// Headers of one HTTP request.
pub(crate) const HEADERS_MAX: usize = 100;

/// Messages that wait between a legacy SSE session and its HTTP requests.
pub(crate) const SSE_QUEUE_MAX: usize = 16;

/// So much of a body is read whatever else is being read; what is beyond shares
/// [`HttpLimits::bodies_bytes_max`].
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// How long a session keeps small answers that were sent, for a client whose connection broke.
pub(crate) const SENT_KEPT_MAX: Duration = Duration::from_secs(10);

/// When to come back after a 503.
pub(crate) const RETRY_AFTER_S: u32 = 1;

/// How much the HTTP server takes.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Open connections; one more is closed at once.
    pub connections_max: usize,
    /// Requests whose answer has not begun; one more is answered 503.
    pub requests_max: usize,
    /// Requests of sessions that are being answered, of all sessions together; their HTTP
    /// connections may be gone meanwhile.
    pub session_requests_max: usize,
    /// The longest JSON body.
    pub body_bytes_max: usize,
    /// What has come of all JSON bodies, beyond the small beginning of each, together. A body
    /// takes its share as it comes.
    pub bodies_bytes_max: usize,
    /// How long a head may take to arrive, which is also how long a connection may idle.
    pub head_timeout: Duration,
    /// How long a JSON body may take to arrive.
    pub body_timeout: Duration,
    /// How long a JSON body may take beyond what `body_bytes_per_s_min` allows it.
    pub body_grace: Duration,
    /// The lowest rate at which a body or an upload may come.
    pub body_bytes_per_s_min: u32,
    /// How long a JSON body may wait for its share of `bodies_bytes_max`.
    pub bodies_wait_timeout: Duration,
    /// How long an upload may pause.
    pub upload_idle_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_idle_timeout: Duration,
    /// Sessions of Streamable HTTP. For one more, the one idle for longest is closed; if all
    /// have an open stream, it is refused with 503.
    pub sessions_max: usize,
    /// How long a session without an open stream lives on.
    pub session_idle_timeout: Duration,
    /// Sessions of legacy SSE; one more is refused with 503.
    pub sse_sessions_max: usize,
    /// How often a silent stream says that it is alive.
    pub keep_alive_interval: Duration,
    /// How long requests may go on once the server stops.
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
    /// How slowly a JSON body may come.
    pub(crate) fn body_pace(&self) -> PaceLimits {
        PaceLimits {
            grace: self.body_grace,
            bytes_per_s_min: self.body_bytes_per_s_min,
            pause_max: self.body_timeout,
            total_max: self.body_timeout,
        }
    }

    /// How slowly an upload may come; in all it may take as long as it likes.
    pub(crate) fn upload_pace(&self) -> PaceLimits {
        PaceLimits {
            grace: self.upload_idle_timeout,
            bytes_per_s_min: self.body_bytes_per_s_min,
            pause_max: self.upload_idle_timeout,
            total_max: Duration::MAX,
        }
    }
}
