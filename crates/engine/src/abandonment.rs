//! Whether the caller of a request still waits.
//!
//! A front end passes an [`Abandonment`] with each request whose answer names something new, and
//! keeps the [`Waiting`] that belongs to it until the answer is delivered. The service decides what
//! is undone when nobody waits any more, and passes its decision to the engine as an `Abandonment`
//! of the call, which the engine checks between two steps.

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::EngineError;

/// Says whether the caller is gone. The default is never abandoned.
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

    /// A request with an idempotency key is never abandoned: its caller can ask again.
    #[must_use]
    pub fn unless(self, has_key: bool) -> Self {
        if has_key { Self::default() } else { self }
    }

    /// A token for a part of the request: abandoned together with it, or earlier.
    #[must_use]
    pub fn part(&self) -> Self {
        Self(self.0.child_token())
    }

    /// Marks the request as abandoned.
    pub fn abandon(&self) {
        self.0.cancel();
    }

    /// Whether nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the request is abandoned.
    pub async fn abandoned(&self) {
        self.0.cancelled().await;
    }

    /// Fails if nobody waits for the result; engines call it between two steps.
    pub fn check(&self) -> Result<(), EngineError> {
        if self.is_abandoned() {
            return Err(EngineError::Abandoned);
        }
        Ok(())
    }
}

impl Waiting {
    /// The answer was delivered: the request can no longer be abandoned.
    pub fn answered(self) {
        let _ = self.0.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_abandoned_with_its_request_or_alone() {
        let (request, waiting) = Abandonment::new();
        let (first, second) = (request.part(), request.part());
        first.abandon();
        assert!(first.check().is_err() && second.check().is_ok() && request.check().is_ok());
        drop(waiting);
        assert!(second.is_abandoned() && request.is_abandoned());
        assert!(request.unless(true).check().is_ok());
    }
}
