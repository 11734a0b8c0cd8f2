//! Callers that show a bearer token.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use hotcell_auth::{AuthEvents, Authenticate, FailedAttempt, Failure};
use hotcell_domain::Caller;
use http::HeaderValue;
use http::request::Parts;

use super::failures::Failures;
use super::{Challenge, Identify, PeerAddress, ResourceMetadata, bearer};
use crate::error::HttpError;

/// Knows callers by their tokens.
pub struct ByToken {
    authenticate: Arc<dyn Authenticate>,
    events: Arc<dyn AuthEvents>,
    challenge: Challenge,
    failures: Failures,
    metadata: Option<ResourceMetadata>,
}

impl ByToken {
    /// Asks `authenticate` whose a token is, and tells `events` of each attempt that fails.
    pub fn new(
        authenticate: Arc<dyn Authenticate>,
        events: Arc<dyn AuthEvents>,
        challenge: Challenge,
    ) -> Self {
        Self {
            authenticate,
            events,
            challenge,
            failures: Failures::default(),
            metadata: None,
        }
    }

    /// Tells clients where to log in.
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
        let is_limited = match address {
            Some(address) if failure.is_guess() => self.failures.count(address, Instant::now()),
            _ => false,
        };
        self.events.auth_failed(&FailedAttempt {
            failure,
            address,
            path: parts.uri.path(),
            is_limited,
        });
        if is_limited {
            self.challenge.slow_down()
        } else {
            self.challenge.answer(failure)
        }
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
