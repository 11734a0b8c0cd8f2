//! JSON-RPC 2.0 as MCP uses it: messages, and the requests that wait for an answer.

mod message;
mod peer;

pub(crate) use message::{Meta, Outgoing, Params, RpcError};
pub use peer::ProgressUpdate;
pub(crate) use peer::{Failure, InFlight, Peer};
