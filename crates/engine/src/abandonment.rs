//! Whether whoever asked for something is still there.
//!
//! A front end hands the service an [`Abandonment`] with each request whose answer names
//! something new, and keeps the [`Waiting`] that belongs to it until the answer is given. The
//! service decides what is undone when nobody waits any more, and passes its decision on to
//! the engine as an `Abandonment` of the call: an engine looks at it between two steps.

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::EngineError;

/// Tells that whoever asked is gone. The default is somebody who always waits.
#[derive(Debug, Clone, Default)]
pub struct Abandonment(CancellationToken);

/// Whoever asked waits for as long as this exists.
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
    #[must_use]
    pub fn unless(self, has_key: bool) -> Self {
        if has_key { Self::default() } else { self }
    }

    /// Part of the same request: abandoned together with it, or before.
    #[must_use]
    pub fn part(&self) -> Self {
        Self(self.0.child_token())
    }

    /// Nobody waits any more.
    pub fn abandon(&self) {
        self.0.cancel();
    }

    /// Whether nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until whoever asked is gone.
    pub async fn abandoned(&self) {
        self.0.cancelled().await;
    }

    /// Lets an engine go on with its next step, unless nobody waits for the result.
    pub fn check(&self) -> Result<(), EngineError> {
        if self.is_abandoned() {
            return Err(EngineError::Abandoned);
        }
        Ok(())
    }
}

impl Waiting {
    /// The answer was given: nothing is abandoned any more.
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
