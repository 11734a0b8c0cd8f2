//! Who sends an HTTP request.
//!
//! Each request of MCP and of `/v1` passes [`Identify::identify`], and what comes out of it is
//! the caller that every layer below sees: this is authentication's place.

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;
use http::request::Parts;

use super::refusal::Refusal;

/// The address that a request came from, in its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Says who sends a request.
pub trait Identify: Send + Sync + 'static {
    /// The caller, or why there is none.
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, Refusal>>;
}

/// No authentication: everybody is the one local caller, and who comes by way of the loopback
/// interface is the operator too.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anonymous;

impl Identify for Anonymous {
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, Refusal>> {
        let peer = parts.extensions.get::<PeerAddress>();
        let is_admin = peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback());
        let caller = Caller {
            is_admin,
            ..Caller::local()
        };
        Box::pin(std::future::ready(Ok(caller)))
    }
}
