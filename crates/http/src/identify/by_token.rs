//! Authentication by bearer token.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use futures_util::future::BoxFuture;
use hotcell_auth::{AuthEvents, Authenticate, FailedAttempt, FailedAttempts, Failure};
use hotcell_domain::Caller;
use http::HeaderValue;
use http::request::Parts;

use super::failures::{Failures, WINDOW};
use super::{Challenge, Identify, PeerAddress, ResourceMetadata, bearer};
use crate::error::HttpError;

/// Identifies callers by their tokens.
pub struct ByToken {
    authenticate: Arc<dyn Authenticate>,
    challenge: Challenge,
    refusals: Arc<Refusals>,
    metadata: Option<ResourceMetadata>,
}

/// Records failed attempts: the first ones each as an event, the rest as counts.
struct Refusals {
    events: Arc<dyn AuthEvents>,
    failures: Failures,
}

impl ByToken {
    /// Verifies tokens with `authenticate`, and reports failed attempts to `events`.
    pub fn new(
        authenticate: Arc<dyn Authenticate>,
        events: Arc<dyn AuthEvents>,
        challenge: Challenge,
    ) -> Self {
        Self {
            authenticate,
            challenge,
            refusals: Arc::new(Refusals {
                events,
                failures: Failures::default(),
            }),
            metadata: None,
        }
    }

    /// Publishes the metadata that tells clients where to log in.
    #[must_use]
    pub fn with_metadata(self, metadata: ResourceMetadata) -> Self {
        Self {
            metadata: Some(metadata),
            ..self
        }
    }

    async fn caller(&self, parts: &Parts) -> Result<Caller, Failure> {
        let token = bearer::token(parts, self.authenticate.token_bytes_max())?;
        self.authenticate.authenticate(token).await
    }

    fn refuse(&self, failure: Failure, parts: &Parts) -> HttpError {
        let address: Option<IpAddr> = parts.extensions.get().map(|PeerAddress(peer)| peer.ip());
        if self.refusals.tell(failure, address, parts.uri.path()) {
            self.challenge.slow_down()
        } else {
            self.challenge.answer(failure)
        }
    }
}

impl Refusals {
    /// Records a failure; returns whether its address must be rate-limited.
    fn tell(self: &Arc<Self>, failure: Failure, address: Option<IpAddr>, path: &str) -> bool {
        let (counted, ended) = self.failures.count(address, failure, Instant::now());
        self.tell_counted(&ended);
        self.events.auth_failed(&FailedAttempt {
            failure,
            address,
            path,
            is_counted: counted.is_counted,
        });
        if counted.is_first_counted {
            tokio::spawn(Self::tell_later(Arc::downgrade(self)));
        }
        counted.is_limited
    }

    /// Reports the counts at the end of the window, even if no further attempt comes.
    async fn tell_later(refusals: Weak<Self>) {
        tokio::time::sleep(WINDOW).await;
        if let Some(refusals) = refusals.upgrade() {
            refusals.tell_counted(&refusals.failures.take_ended(Instant::now()));
        }
    }

    fn tell_counted(&self, counted: &[FailedAttempts]) {
        for attempts in counted {
            self.events.auth_failed_often(attempts);
        }
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        self.tell_counted(&self.failures.take());
    }
}

impl Identify for ByToken {
    fn identify<'a>(&'a self, parts: &'a Parts) -> BoxFuture<'a, Result<Caller, HttpError>> {
        Box::pin(async move {
            let caller = self.caller(parts).await;
            caller.map_err(|failure| self.refuse(failure, parts))
        })
    }

    fn metadata(&self) -> Option<&ResourceMetadata> {
        self.metadata.as_ref()
    }

    fn admin_challenge(&self) -> Option<HeaderValue> {
        Some(self.challenge.for_admins())
    }
}
