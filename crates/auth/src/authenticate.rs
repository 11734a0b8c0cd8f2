//! The seam between a transport that carries tokens and whoever knows them.

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;

use crate::Failure;

/// Knows whose a token is.
pub trait Authenticate: Send + Sync + 'static {
    /// The caller whose token this is, or why there is none. A longer text than
    /// [`Self::token_bytes_max`] is not to be handed in.
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Caller, Failure>>;

    /// The longest token worth looking at.
    fn token_bytes_max(&self) -> usize;
}
