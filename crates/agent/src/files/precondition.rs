//! Preconditions of a change.

use hotcell_agent_api::v1::{self, precondition};
use rustix::fs::Stat;

use super::error::Error;
use super::etag::etag;

/// The longest etag accepted from a caller; ours are shorter.
const ETAG_BYTES_MAX: usize = 64;

/// A parsed precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    Anything,
    /// The file exists and has this etag.
    Etag(String),
    /// The file does not exist.
    Absent,
}

impl Expect {
    /// Parses the message; without one, every state is accepted.
    pub(super) fn parse(raw: Option<&v1::Precondition>) -> Result<Self, Error> {
        use precondition::Precondition::{IfAbsent, IfMatch};
        match raw.and_then(|raw| raw.precondition.as_ref()) {
            None | Some(IfAbsent(false)) => Ok(Self::Anything),
            Some(IfAbsent(true)) => Ok(Self::Absent),
            Some(IfMatch(etag)) if etag.is_empty() || etag.len() > ETAG_BYTES_MAX => {
                Err(Error::Invalid("the etag cannot be one of ours"))
            }
            Some(IfMatch(etag)) => Ok(Self::Etag(etag.clone())),
        }
    }

    /// Checks the precondition against the current state.
    pub(super) fn check(&self, now: Option<&Stat>) -> Result<(), Error> {
        let current = now.map(etag);
        match (self, current) {
            (Self::Anything, _) | (Self::Absent, None) => Ok(()),
            (Self::Etag(wanted), Some(etag)) if *wanted == etag => Ok(()),
            (Self::Absent, Some(etag)) => Err(Error::Exists { etag }),
            (Self::Etag(_), etag) => Err(Error::Changed { etag }),
        }
    }
}
