//! Transports: how messages arrive and replies leave. Nothing here knows a tool: any
//! [`rmcp::ServerHandler`] can be served over stdio and the unix socket, and by the HTTP crate,
//! which builds on [`InFlight`], [`ReplyLease`] and [`batch`].
//!
//! ```text
//! stdio, unix socket ─ lines ───┐
//! HTTP: Streamable HTTP, SSE ───┴─ in flight ─ handler
//! ```

pub mod batch;
mod inflight;
mod limits;
mod lines;
mod raw;
mod reply_budget;
mod socket;
mod stdio;
mod write_timeout;

pub use inflight::InFlight;
pub use limits::{
    ANSWER_WAIT_MAX, ANSWERS_BYTES_MAX, MESSAGE_BYTES_MAX, REQUESTS_PER_CONNECTION_MAX,
    SOCKET_CONNECTIONS_MAX,
};
pub use raw::{NoRawStreams, RAW_MARK, RawStreams};
pub(crate) use reply_budget::{BudgetExhausted, LeaseShare, ReplyBudget};
pub use reply_budget::{ReplyLease, SendReply, answered, not_kept};
pub use socket::Socket;
pub use stdio::serve_stdio;
pub use write_timeout::WriteTimeout;
