//! Egress: what containers may reach, decided and dialled on the host.
//!
//! ```text
//!  program ─ DNS ─▶ agent ══ tunnel ══▶ Guest::answer ─▶ policy ─▶ resolver      127.77.x.y is the name
//!  program ─ TCP ─▶ agent ══ tunnel ══▶ Guest::serve ─▶ policy ─▶ first bytes ─▶ dial ─▶ splice, or HTTP
//! ```
//!
//! A container has no interface but loopback. Each name that its profile allows gets a loopback
//! address of its own, where the agent listens and passes connections on; a name that is refused
//! gets the address where the broker answers with the reason, or asks somebody first. The agent parses nothing: whatever a
//! program sends is read here. One canonical [`HostName`] is used for matching, resolving,
//! comparing and logging.

#![forbid(unsafe_code)]

mod address;
mod ask;
mod authority;
mod broker;
mod cache;
mod connection;
mod denial;
mod dns;
mod door;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod hello;
mod http;
mod meter;
mod name;
mod names;
mod own_addresses;
mod pattern;
mod policy;
mod resolve;
mod secret;
mod serve;
mod splice;

pub use self::address::{Range, RangeError};
pub use self::ask::{Question, Verdict};
pub use self::authority::AuthorityError;
pub use self::broker::{Broker, CONNECTIONS_MAX};
pub use self::denial::{Denial, Reason};
pub use self::dns::QUERY_BYTES_MAX;
pub use self::guest::{Guest, Listeners, Observer, Opened, REFUSAL_PORTS, Report, Target};
pub use self::name::{HostName, NameError};
pub use self::names::{PROXY, REFUSAL};
pub use self::pattern::{Pattern, PatternError};
pub use self::policy::{
    Access, AccessError, Ask, AskError, AskWait, AskWaitError, FixedAddress, FixedAddressError,
    Grant, Limits, Line, List, ListError, Policy, PolicyError, Profile, ProfileEnv,
    ProfileEnvError, ProfileName, ProfileNameError, ProfileSettings, Refusal, RuleSettings,
    Settings, Tls, TlsError,
};
pub use self::secret::{
    INSIDE_WORD, InsideName, InsideNameError, Secret, SecretError, SecretHeader, SecretHeaderError,
    SecretLength, SecretName, SecretNameError, SecretSettings, SecretSource, SecretSourceError,
};
pub use self::serve::Stream;
