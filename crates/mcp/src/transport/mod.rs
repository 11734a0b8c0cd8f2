//! How messages come in and answers go out. Nothing here knows a tool: whatever is an
//! [`rmcp::ServerHandler`] can be served by stdio, the unix socket, Streamable HTTP and
//! legacy SSE, and each of them is bounded.
//!
//! ```text
//! TCP ─ accept ─ guard ─ identify ─┬─ streamable ─ sessions ─┐
//!                                  ├─ sse ───────────────────┤
//!                                  └─ endpoints              ├─ in flight ─ handler
//! stdio, unix socket ─ lines ────────────────────────────────┘
//! ```

mod accept;
mod batch;
mod body;
mod guard;
mod http;
mod identify;
mod inflight;
mod limits;
mod lines;
mod pace;
mod patience;
mod refusal;
mod reply;
mod sessions;
mod socket;
mod sse;
mod stdio;
mod streamable;

pub use accept::serve_http;
pub(crate) use body::discard;
pub use guard::{Guard, GuardError};
pub use http::{Http, HttpSettings, MCP_PATH};
pub use identify::{Anonymous, Identify};
pub use limits::{
    ANSWER_WAIT_MAX, ANSWERS_BYTES_MAX, HttpLimits, MESSAGE_BYTES_MAX, REQUESTS_PER_CONNECTION_MAX,
    SOCKET_CONNECTIONS_MAX,
};
pub(crate) use pace::{Pace, PaceLimits};
pub use refusal::Refusal;
pub(crate) use reply::{Answers, Full, Reply, Share, json_bytes};
pub use socket::Socket;
pub use stdio::serve_stdio;
