//! Identifies the caller of an HTTP request.
//!
//! Each request to MCP, `/v1` and `/metrics` passes [`Identify::identify`]; its result is the
//! caller that every layer below sees. Authentication happens here and nowhere else.
//!
//! ```text
//! Authorization ─ bearer (one header, one token, bounded) ─▶ crate auth (whose is it?) ─▶ Caller
//!                    └──────────────── failures (rate, event) ─▶ challenge: 401, 403 or 429
//! /.well-known/oauth-protected-resource ─▶ metadata: where to log in (open to everybody)
//! ```

mod bearer;
mod by_token;
mod challenge;
mod failures;
mod metadata;

use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;
use http::HeaderValue;
use http::request::Parts;

pub use by_token::ByToken;
pub use challenge::Challenge;
pub use metadata::ResourceMetadata;

use crate::error::HttpError;

/// Identifies the caller of a request.
pub trait Identify: Send + Sync + 'static {
    /// The caller, or why the request is refused.
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, HttpError>>;

    /// Public metadata about how to log in, if clients can.
    fn metadata(&self) -> Option<&ResourceMetadata> {
        None
    }

    /// The `WWW-Authenticate` header for a client that lacks admin rights, if logging in can help.
    fn admin_challenge(&self) -> Option<HeaderValue> {
        None
    }
}

/// The peer address of the request's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// The `WWW-Authenticate` header for a client that lacks the admin scope.
#[derive(Debug, Clone)]
pub(crate) struct AdminChallenge(pub(crate) HeaderValue);

/// No authentication: every request has the same local caller. The peer address never makes a
/// caller an admin: behind a proxy on this machine, everyone comes from here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anonymous {
    /// Whether every caller is an admin, as the operator configured.
    pub is_admin: bool,
}

impl Identify for Anonymous {
    fn identify<'a>(&'a self, _: &'a Parts) -> BoxFuture<'a, Result<Caller, HttpError>> {
        let caller = Caller {
            is_admin: self.is_admin,
            ..Caller::local()
        };
        Box::pin(std::future::ready(Ok(caller)))
    }
}
