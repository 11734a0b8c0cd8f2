//! Who sends an HTTP request.
//!
//! Each request of MCP and of `/v1` passes [`Identify::identify`], and what comes out of it is
//! the caller that every layer below sees: this is authentication's place.

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;
use http::request::Parts;

use crate::error::HttpError;

/// Says who sends a request.
pub trait Identify: Send + Sync + 'static {
    /// The caller, or why there is none.
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, HttpError>>;
}

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
