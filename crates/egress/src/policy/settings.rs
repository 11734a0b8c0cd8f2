//! The policy as an operator writes it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::access::Access;
use super::lists::List;
use crate::HostName;
use crate::address::Range;
use crate::pattern::Pattern;
use crate::secret::{SecretName, SecretSettings};

/// Longest name of a profile.
const NAME_BYTES_MAX: usize = 64;

/// What downloads may take on the host's disk unless the operator says otherwise.
const CACHE_BYTES_MAX: u64 = 5 << 30;

/// How long a connection waits for an answer unless the operator says otherwise, and the longest
/// that may be set: programs give up, too.
const ASK_WAIT: Duration = Duration::from_secs(20);
const ASK_WAIT_MAX: Duration = Duration::from_mins(1);

/// The name of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileName(Box<str>);

/// Not the name of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a profile has 1 to 64 lower-case letters, digits and dashes, the first a letter"
)]
pub struct ProfileNameError;

impl ProfileName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, ProfileNameError> {
        let is_legal = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        is_legal.then(|| Self(text.into())).ok_or(ProfileNameError)
    }

    /// `none`: nothing may leave.
    pub fn none() -> Self {
        Self("none".into())
    }

    /// `packages`: the public package indexes.
    pub fn packages() -> Self {
        Self("packages".into())
    }

    /// Whether it is `none`.
    pub fn is_none(&self) -> bool {
        &*self.0 == "none"
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All of `[egress]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The profile of a container that names none.
    pub default: ProfileName,
    /// Profiles that callers may name, besides `none` and the default.
    pub granted: Vec<ProfileName>,
    /// Private ranges that names may resolve to.
    pub private: Vec<Range>,
    /// Names that are not resolved but mean a fixed address, on one port or on all: a mirror on
    /// this host, for example. Such an address may be private or loopback, because the operator
    /// has written it.
    pub hosts: BTreeMap<(HostName, Option<u16>), FixedAddress>,
    /// `[egress.NAME]`.
    pub profiles: BTreeMap<ProfileName, ProfileSettings>,
    /// `[secret.NAME]`.
    pub secrets: BTreeMap<SecretName, SecretSettings>,
    /// Most bytes that downloads may take on the host's disk, of profiles with `cache`.
    pub cache_bytes_max: u64,
    /// Whether somebody is asked about a name that is not listed.
    pub ask: Ask,
    /// How long its connections wait for the answer.
    pub ask_wait: AskWait,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default: ProfileName::none(),
            granted: Vec::new(),
            private: Vec::new(),
            hosts: BTreeMap::new(),
            profiles: BTreeMap::new(),
            secrets: BTreeMap::new(),
            cache_bytes_max: CACHE_BYTES_MAX,
            ask: Ask::default(),
            ask_wait: AskWait::default(),
        }
    }
}

/// What happens to a connection to a name that is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ask {
    /// It is refused.
    #[default]
    Off,
    /// It waits while somebody is asked.
    Hold,
}

/// Not a way to ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: ask is \"off\" or \"hold\"")]
pub struct AskError(String);

impl FromStr for Ask {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        match text {
            "off" => Ok(Self::Off),
            "hold" => Ok(Self::Hold),
            other => Err(AskError(other.to_owned())),
        }
    }
}

/// How long a connection waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskWait(Duration);

/// Not a time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`ask_wait_s` must be from 1 to {}", ASK_WAIT_MAX.as_secs())]
pub struct AskWaitError;

impl AskWait {
    /// A time of so many seconds.
    pub fn from_seconds(seconds: u64) -> Result<Self, AskWaitError> {
        let is_legal = (1..=ASK_WAIT_MAX.as_secs()).contains(&seconds);
        let wait = Self(Duration::from_secs(seconds));
        is_legal.then_some(wait).ok_or(AskWaitError)
    }

    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

impl Default for AskWait {
    fn default() -> Self {
        Self(ASK_WAIT)
    }
}

/// Where a name with a fixed address is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedAddress {
    /// The address.
    pub ip: IpAddr,
    /// `None`: the port that was asked for.
    pub port: Option<u16>,
}

/// Not a fixed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a fixed address as IP or IP:PORT, such as 10.1.2.3 or 127.0.0.1:8080")]
pub struct FixedAddressError;

impl FromStr for FixedAddress {
    type Err = FixedAddressError;

    fn from_str(text: &str) -> Result<Self, FixedAddressError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            let port = Some(address.port()).filter(|port| *port > 0);
            let ip = address.ip();
            return port
                .map(|port| Self {
                    ip,
                    port: Some(port),
                })
                .ok_or(FixedAddressError);
        }
        let ip = text.parse().map_err(|_| FixedAddressError)?;
        Ok(Self { ip, port: None })
    }
}

/// One `[egress.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSettings {
    /// Profiles whose entries and denials this one has too.
    pub include: Vec<ProfileName>,
    /// Built-in lists of hosts.
    pub lists: Vec<List>,
    /// Hosts with the access of this profile.
    pub allow: Vec<Pattern>,
    /// Hosts that are refused whatever else allows them.
    pub deny: Vec<Pattern>,
    /// Access to the hosts of `lists` and `allow`.
    pub access: Access,
    /// Hosts with an access of their own.
    pub rules: Vec<RuleSettings>,
    /// Allow every public host that `deny` does not list.
    pub open: bool,
    /// Open TLS even where nothing needs it, so that no request goes to another host than its
    /// connection. Rules with `tls = "splice"` stay closed.
    pub strict: bool,
    /// Keep what is downloaded on the host and share it between containers. TLS is opened.
    pub cache: bool,
    /// Variables that programs inside get, besides those for certificates. Not included elsewhere.
    pub env: ProfileEnv,
    /// Bounds of one container.
    pub limits: Limits,
}

impl ProfileSettings {
    /// The built-in profile: the public package indexes, for reading.
    pub fn packages() -> Self {
        Self {
            lists: List::all(),
            access: Access::Read,
            cache: true,
            ..Self::default()
        }
    }
}

/// One `[[egress.NAME.rule]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSettings {
    /// The hosts.
    pub host: Pattern,
    /// Which requests they get.
    pub access: Access,
    /// Whether TLS is opened.
    pub tls: Tls,
    /// The secret that each request carries.
    pub secret: Option<SecretName>,
}

impl RuleSettings {
    /// A rule with nothing but an access.
    pub fn new(host: Pattern, access: Access) -> Self {
        Self {
            host,
            access,
            tls: Tls::Auto,
            secret: None,
        }
    }
}

/// Whether the broker ends TLS itself and reads the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Where something needs it: an access other than `full`, a secret, the cache.
    #[default]
    Auto,
    /// Always.
    Open,
    /// Never, for clients that pin certificates or have their own. Only the server name is seen.
    Splice,
}

/// Not a treatment of TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: tls is \"auto\", \"open\" or \"splice\"")]
pub struct TlsError(String);

impl FromStr for Tls {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        match text {
            "auto" => Ok(Self::Auto),
            "open" => Ok(Self::Open),
            "splice" => Ok(Self::Splice),
            other => Err(TlsError(other.to_owned())),
        }
    }
}

/// Which variables a profile sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileEnv {
    /// None: programs use names.
    #[default]
    None,
    /// Those that point programs at the [proxy](crate::PROXY).
    Proxy,
}

/// Not a choice of variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: env is \"none\" or \"proxy\"")]
pub struct ProfileEnvError(String);

impl FromStr for ProfileEnv {
    type Err = ProfileEnvError;

    fn from_str(text: &str) -> Result<Self, ProfileEnvError> {
        match text {
            "none" => Ok(Self::None),
            "proxy" => Ok(Self::Proxy),
            other => Err(ProfileEnvError(other.to_owned())),
        }
    }
}

/// Bounds of what one container may use. Reaching one is a denial with that reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are open together.
    pub connections: u16,
    /// Bytes received over the container's life.
    pub down_bytes: u64,
    /// Bytes sent over the container's life.
    pub up_bytes: u64,
    /// Bytes per second, in each direction.
    pub rate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            down_bytes: 4 << 30,
            up_bytes: 256 << 20,
            rate: 100_000_000,
        }
    }
}
