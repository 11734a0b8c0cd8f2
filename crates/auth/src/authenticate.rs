//! The interface between a transport that carries tokens and a verifier.

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;

use crate::Failure;

/// Verifies tokens.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller that a token belongs to, or why it is rejected. Texts longer than
    /// [`Self::token_bytes_max`] must not be passed.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Failure>>;

    /// The longest possible token.
    fn token_bytes_max(&self) -> usize;
}
