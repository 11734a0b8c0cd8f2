//! Whether the caller of a request still waits for the answer.
//!
//! A front end passes an [`Abandonment`] with each request whose answer names something new, and
//! keeps the matching [`Waiting`] until the answer is given. The service alone decides what is
//! undone when the caller goes away: a container or an exec with an idempotency key continues,
//! because the key leads back to it; any other one ends, because nobody would ever learn its id.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Tells that the caller has gone away. By default, the caller waits for ever.
#[derive(Debug, Clone, Default)]
pub struct Abandonment(CancellationToken);

/// The caller waits as long as this exists.
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

    /// A request with an idempotency key is never abandoned.
    pub(crate) fn unless(self, has_key: bool) -> Self {
        if has_key { Self::default() } else { self }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the caller has gone away.
    pub(crate) async fn abandoned(&self) {
        self.0.cancelled().await;
    }
}

impl Waiting {
    /// Marks the request as answered: it can no longer be abandoned.
    pub fn answered(self) {
        let _ = self.0.disarm();
    }
}
