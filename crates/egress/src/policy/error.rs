//! What can be wrong with a policy.

use super::access::AccessError;
use super::settings::ProfileName;
use crate::pattern::{Pattern, PatternError};
use crate::secret::SecretName;

/// Why settings do not make a policy. Nothing of them is used then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A profile that does not exist is named.
    #[error("{place} names the profile `{name}`, which does not exist; there are {known}")]
    Unknown {
        /// Where it is named.
        place: String,
        /// The name.
        name: ProfileName,
        /// Those that exist.
        known: String,
    },
    /// `none` means that nothing is reachable.
    #[error("the profile `none` is built in and cannot be defined")]
    None,
    /// Profiles that include each other.
    #[error("[egress.{0}] includes itself, or more than 8 profiles one in the next")]
    Include(ProfileName),
    /// Two entries disagree about the same request.
    #[error(
        "[egress.{profile}] lists {first} ({first_treatment}) and {second} ({second_treatment}); one request must have one treatment"
    )]
    Ambiguous {
        /// The profile.
        profile: ProfileName,
        /// One of the two.
        first: Pattern,
        /// How it is treated.
        first_treatment: String,
        /// The other.
        second: Pattern,
        /// How it is treated.
        second_treatment: String,
    },
    /// A rule names a secret that does not exist.
    #[error(
        "a rule of [egress.{profile}] names the secret `{secret}`; there is no [secret.{secret}]"
    )]
    UnknownSecret {
        /// The profile.
        profile: ProfileName,
        /// The secret.
        secret: SecretName,
    },
    /// A rule would give a secret to hosts that nobody has named, or to whoever listens.
    #[error("the rule for {host} of [egress.{profile}] has a secret: {problem}")]
    SecretRule {
        /// The profile.
        profile: ProfileName,
        /// The rule's host.
        host: Pattern,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A rule keeps TLS closed and wants what needs it open.
    #[error(
        "the rule for {host} of [egress.{profile}] has tls = \"splice\", with which requests cannot be seen; it cannot have an access other than \"full\""
    )]
    Splice {
        /// The profile.
        profile: ProfileName,
        /// The rule's host.
        host: Pattern,
    },
    /// A host of a built-in list is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// What a host of a built-in list redirects to is described wrongly.
    #[error(transparent)]
    Access(#[from] AccessError),
}
