//! Who sends an HTTP request.
//!
//! Each request of MCP, of `/v1` and for `/metrics` passes [`Identify::identify`], and what
//! comes out of it is the caller that every layer below sees: this is authentication's place.
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

/// Says who sends a request.
pub trait Identify: Send + Sync + 'static {
    /// The caller, or why there is none.
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, HttpError>>;

    /// What anybody may know about how to log in, where one can.
    fn metadata(&self) -> Option<&ResourceMetadata> {
        None
    }

    /// The `WWW-Authenticate` of an answer that only admins get, where logging in can help.
    fn admin_challenge(&self) -> Option<HeaderValue> {
        None
    }
}

/// The other end of the connection that a request came on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// How a client that lacks the admin scope is told so.
#[derive(Debug, Clone)]
pub(crate) struct AdminChallenge(pub(crate) HeaderValue);

/// No authentication: everybody is the one local caller. Nobody is the operator by the address
/// that a request comes from, for behind a proxy on this machine everybody comes from here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anonymous {
    /// Whether everybody is the operator, because the operator said so.
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
