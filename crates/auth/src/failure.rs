//! Attempts to get in that failed, and who is told of them.

use std::net::IpAddr;

/// Why nobody was let in. This is for the operator; what the client hears is less, so that it
/// cannot learn which tokens exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// The request has no credentials.
    #[error("missing")]
    Missing,
    /// There is not exactly one `Authorization` header with one bearer token.
    #[error("malformed")]
    Malformed,
    /// It is too long to be a token.
    #[error("too_long")]
    TooLong,
    /// A token stands in the URL, where logs and proxies see it.
    #[error("in_query")]
    InQuery,
    /// No such token, or it was revoked.
    #[error("unknown")]
    Unknown,
    /// Its time is over.
    #[error("expired")]
    Expired,
    /// Its time has not come.
    #[error("not_yet_valid")]
    NotYetValid,
    /// It is signed in a way that is not accepted, or not at all.
    #[error("algorithm")]
    Algorithm,
    /// The issuer has no such key.
    #[error("unknown_key")]
    UnknownKey,
    /// The key has not signed it.
    #[error("signature")]
    Signature,
    /// It is from another issuer.
    #[error("issuer")]
    Issuer,
    /// It is for another server.
    #[error("audience")]
    Audience,
    /// It is good, and lacks a scope that everybody needs.
    #[error("insufficient_scope")]
    Scope,
    /// The issuer's keys are not known and cannot be fetched.
    #[error("issuer_unavailable")]
    Unavailable,
}

impl Failure {
    /// Whether somebody who never had a token could have sent this: of these, one address may
    /// send only so many. Asking without a token is how a login begins, and is no guess.
    pub fn is_guess(self) -> bool {
        match self {
            Self::Malformed
            | Self::TooLong
            | Self::InQuery
            | Self::Unknown
            | Self::Algorithm
            | Self::UnknownKey
            | Self::Signature => true,
            Self::Missing
            | Self::Expired
            | Self::NotYetValid
            | Self::Issuer
            | Self::Audience
            | Self::Scope
            | Self::Unavailable => false,
        }
    }
}

/// One attempt that failed.
#[derive(Debug, Clone, Copy)]
pub struct FailedAttempt<'a> {
    /// Why.
    pub failure: Failure,
    /// Where it came from; behind a proxy, the proxy's address.
    pub address: Option<IpAddr>,
    /// The path of the request, without its query.
    pub path: &'a str,
    /// Whether there are so many that it is only counted: it is told again, as one of
    /// [`FailedAttempts`].
    pub is_counted: bool,
}

/// Attempts that were counted for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Where they came from, an address or its network; `None` if from several or unknown ones.
    pub address: Option<IpAddr>,
    /// How many.
    pub count: u64,
    /// Why the last of them failed.
    pub failure: Failure,
}

/// Is told of failed attempts: the event `AUTH_FAILED`. It must not wait: a request does.
pub trait AuthEvents: Send + Sync + 'static {
    /// Somebody was not let in.
    fn auth_failed(&self, attempt: &FailedAttempt<'_>);

    /// Somebody was not let in many times. Each of these attempts was told before, as counted.
    fn auth_failed_often(&self, attempts: &FailedAttempts);
}

/// The longest part of a path in a line of the log.
const PATH_CHARS_MAX: usize = 128;

/// Tells the log. Attempts that are only counted are shown if the log shows everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogEvents;

impl AuthEvents for LogEvents {
    fn auth_failed(&self, attempt: &FailedAttempt<'_>) {
        let reason = attempt.failure;
        let address = attempt.address.map(tracing::field::display);
        let path: String = attempt.path.chars().take(PATH_CHARS_MAX).collect();
        if attempt.is_counted {
            tracing::debug!(target: "hotcell::auth", %reason, address, path, "AUTH_FAILED");
        } else {
            tracing::warn!(target: "hotcell::auth", %reason, address, path, "AUTH_FAILED");
        }
    }
    fn auth_failed_often(&self, attempts: &FailedAttempts) {
        let FailedAttempts {
            address,
            count,
            failure,
        } = attempts;
        let address = address.map(tracing::field::display);
        tracing::warn!(target: "hotcell::auth", reason = %failure, address, count, "AUTH_FAILED, and often");
    }
}
