//! Failed authentication attempts, and their reporting.

use std::net::IpAddr;

/// Why authentication failed. This is for the operator; the client learns less, so that it cannot
/// find out which tokens exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// The request has no credentials.
    #[error("missing")]
    Missing,
    /// There is not exactly one `Authorization` header with one bearer token.
    #[error("malformed")]
    Malformed,
    /// The text is too long to be a token.
    #[error("too_long")]
    TooLong,
    /// The token is in the URL, where logs and proxies see it.
    #[error("in_query")]
    InQuery,
    /// No such token, or it was revoked.
    #[error("unknown")]
    Unknown,
    /// The token has expired.
    #[error("expired")]
    Expired,
    /// The token is not valid yet.
    #[error("not_yet_valid")]
    NotYetValid,
    /// The signature algorithm is not accepted, or the token is not signed.
    #[error("algorithm")]
    Algorithm,
    /// The issuer has no such signing key.
    #[error("unknown_key")]
    UnknownKey,
    /// The signature is wrong.
    #[error("signature")]
    Signature,
    /// The token is from another issuer.
    #[error("issuer")]
    Issuer,
    /// The token is for another server.
    #[error("audience")]
    Audience,
    /// The token is valid, but lacks a required scope.
    #[error("insufficient_scope")]
    Scope,
    /// The issuer's keys are unknown and cannot be fetched.
    #[error("issuer_unavailable")]
    Unavailable,
}

impl Failure {
    /// Whether a client that never had a token could have sent this: such attempts are rate-limited
    /// per address. A request without a token is how a login begins, and is not a guess.
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

/// One failed attempt.
#[derive(Debug, Clone, Copy)]
pub struct FailedAttempt<'a> {
    /// The cause.
    pub failure: Failure,
    /// The peer address; behind a proxy, the proxy's.
    pub address: Option<IpAddr>,
    /// The path of the request, without its query.
    pub path: &'a str,
    /// Whether there are too many failures for an event of its own: then it is reported again as a
    /// part of [`FailedAttempts`].
    pub is_counted: bool,
}

/// Failed attempts that were counted over a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAttempts {
    /// The address or network they came from; `None` if there are several or it is unknown.
    pub address: Option<IpAddr>,
    /// Number of attempts.
    pub count: u64,
    /// The cause of the last one.
    pub failure: Failure,
}

/// Receives failed attempts: the event `AUTH_FAILED`. Must not block, because a request waits for
/// it.
pub trait AuthEvents: Send + Sync + 'static {
    /// An attempt failed.
    fn auth_failed(&self, attempt: &FailedAttempt<'_>);

    /// Many attempts failed. Each of them was reported before, as counted.
    fn auth_failed_often(&self, attempts: &FailedAttempts);
}

/// The longest path in a log line.
const PATH_CHARS_MAX: usize = 128;

/// Writes failed attempts to the log. Those that are only counted are logged at the level `debug`.
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
