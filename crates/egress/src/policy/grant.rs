//! What a connection may do, once a profile has let it through.

use std::fmt;
use std::sync::Arc;

use super::access::Access;
use super::settings::Tls;
use crate::secret::Secret;

/// What a connection may do. Two entries that match one connection must agree on all but the rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The entry that allows it, as it is shown in events.
    pub rule: String,
    /// Which requests it may carry.
    pub access: Access,
    /// Whether TLS is opened.
    pub tls: Tls,
    /// What each request carries.
    pub secret: Option<Arc<Secret>>,
    /// Whether downloads are kept and shared.
    pub cache: bool,
}

impl Grant {
    /// Whether requests have to be seen, so that TLS is opened.
    pub fn is_opened(&self) -> bool {
        self.tls == Tls::Open || self.needs_requests()
    }

    /// Whether something is only possible if requests are seen.
    pub(super) fn needs_requests(&self) -> bool {
        self.access.needs_requests() || self.secret.is_some() || self.cache
    }

    pub(super) fn treats_like(&self, other: &Self) -> bool {
        let treatment = |grant: &Self| (grant.tls, grant.cache, grant.secret.clone());
        self.access == other.access && treatment(self) == treatment(other)
    }

    /// How it treats requests, in words.
    pub(super) fn treatment(&self) -> String {
        Treatment(self).to_string()
    }
}

struct Treatment<'a>(&'a Grant);

impl fmt::Display for Treatment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access {}", self.0.access)?;
        f.write_str(match self.0.tls {
            Tls::Auto => "",
            Tls::Open => ", TLS opened",
            Tls::Splice => ", TLS not opened",
        })?;
        if let Some(secret) = &self.0.secret {
            write!(f, ", secret {}", secret.name())?;
        }
        f.write_str(if self.0.cache { ", cached" } else { "" })
    }
}
