//! Whether whoever asked for something is still there.
//!
//! A front end hands the service an [`Abandonment`] with each request whose answer names
//! something new, and keeps the [`Waiting`] that belongs to it until the answer is given. What
//! is undone when nobody waits any more is decided by the service alone: a container or an exec
//! that a key leads back to goes on, any other ends, because nobody would ever learn its id.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Tells that whoever asked is gone. The default is somebody who always waits.
#[derive(Debug, Clone, Default)]
pub struct Abandonment(CancellationToken);

/// Whoever asked waits for as long as this is there.
#[derive(Debug)]
#[must_use = "dropping it abandons the request"]
pub struct Waiting(DropGuard);

impl Abandonment {
    /// A request that is abandoned when its [`Waiting`] is dropped.
    pub fn new() -> (Self, Waiting) {
        let token = CancellationToken::new();
        let waiting = Waiting(token.clone().drop_guard());
        (Self(token), waiting)
    }

    /// What a key leads back to is never abandoned.
    pub(crate) fn unless(self, has_key: bool) -> Self {
        if has_key { Self::default() } else { self }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until whoever asked is gone.
    pub(crate) async fn abandoned(&self) {
        self.0.cancelled().await;
    }
}

impl Waiting {
    /// The answer was given: nothing is abandoned any more.
    pub fn answered(self) {
        let _ = self.0.disarm();
    }
}
