//! Hotcell over HTTP: the listener, the checks that every request passes, MCP as Streamable HTTP
//! and legacy SSE, and other endpoints (`/v1`, health, metrics).
//!
//! ```text
//! TCP ─ accept ─ guard ─ identify ─┬─ streamable ─ sessions ─┐
//!                                  ├─ sse ───────────────────┴─ in flight ─ handler (crate mcp)
//!                                  └─ endpoints ─ service
//! ```
//!
//! This crate depends on `mcp`, not the other way round: errors of `/v1` have the codes and
//! sentences of the tools, and both MCP transports serve any `rmcp::ServerHandler`.

#![forbid(unsafe_code)]

mod accept;
mod body;
pub mod endpoints;
mod error;
mod guard;
mod identify;
mod limits;
mod pace;
mod router;
mod sessions;
mod shares;
mod sse;
mod streamable;

pub use accept::serve_http;
pub use error::HttpError;
pub use guard::{Guard, GuardError};
pub use identify::{Anonymous, ByToken, Challenge, Identify, ResourceMetadata};
pub use limits::HttpLimits;
pub use router::{Http, HttpSettings, MCP_PATH, RESERVED_PATHS};
