//! What a container may reach: profiles, compiled from the operator's settings.

mod access;
mod compile;
mod error;
mod grant;
mod lists;
mod settings;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::HostName;
use crate::address::Range;
use crate::pattern::Pattern;
use crate::secret::{InsideName, Secret, SecretName};

pub use self::access::{Access, AccessError, Line};
pub use self::error::PolicyError;
pub use self::grant::Grant;
pub use self::lists::{List, ListError};
pub use self::settings::{
    Ask, AskError, AskWait, AskWaitError, FixedAddress, FixedAddressError, Limits, ProfileEnv,
    ProfileEnvError, ProfileName, ProfileNameError, ProfileSettings, RuleSettings, Settings, Tls,
    TlsError,
};

/// Every profile as it was written, by name.
type Sources = BTreeMap<ProfileName, ProfileSettings>;

/// Every profile, ready to decide. A reload compiles a new one and replaces the old one as a whole.
#[derive(Debug)]
pub struct Policy {
    default: ProfileName,
    granted: BTreeSet<ProfileName>,
    private: Vec<Range>,
    hosts: BTreeMap<(HostName, Option<u16>), FixedAddress>,
    profiles: BTreeMap<ProfileName, Arc<Profile>>,
    secrets: BTreeMap<SecretName, Arc<Secret>>,
    cache_bytes_max: u64,
    ask: Ask,
    ask_wait: AskWait,
}

/// What the containers of one profile may reach.
#[derive(Debug)]
pub struct Profile {
    name: ProfileName,
    /// By the host, or by the domain above the names that match.
    exact: HashMap<HostName, Vec<Entry>>,
    below: HashMap<Box<str>, Vec<Entry>>,
    denied_exact: HashMap<HostName, Vec<Pattern>>,
    denied_below: HashMap<Box<str>, Vec<Pattern>>,
    is_open: bool,
    /// How hosts are treated that only `open` allows.
    open: Arc<Grant>,
    /// How hosts are treated that somebody allows when asked: as those of `allow`.
    asked: Arc<Grant>,
    env: ProfileEnv,
    limits: Limits,
}

/// A pattern and what it grants.
#[derive(Clone, Debug)]
struct Entry {
    pattern: Pattern,
    grant: Arc<Grant>,
}

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No entry matches the name.
    NotListed,
    /// The name is listed with other ports.
    Port(Vec<u16>),
    /// An entry of `deny` matches.
    Denied(Pattern),
}

impl Policy {
    /// Compiles settings, or says what is wrong with them.
    pub fn compile(settings: &Settings) -> Result<Self, PolicyError> {
        let mut sources = settings.profiles.clone();
        if sources.contains_key(&ProfileName::none()) {
            return Err(PolicyError::None);
        }
        sources
            .entry(ProfileName::packages())
            .or_insert_with(ProfileSettings::packages);
        let known = |place: &str, name: &ProfileName| {
            if name.is_none() || sources.contains_key(name) {
                return Ok(());
            }
            Err(unknown(place, name, &sources))
        };
        known("[egress] default", &settings.default)?;
        for name in &settings.granted {
            known("[egress] profiles", name)?;
        }
        let secrets = settings.secrets.iter().map(|(name, settings)| {
            let secret = Secret::new(name.clone(), settings.clone());
            (name.clone(), Arc::new(secret))
        });
        let secrets: BTreeMap<_, _> = secrets.collect();
        let mut profiles = BTreeMap::new();
        for name in sources.keys() {
            let profile = Profile::compile(name, &sources, &secrets)?;
            profiles.insert(name.clone(), Arc::new(profile));
        }
        Ok(Self {
            default: settings.default.clone(),
            granted: settings.granted.iter().cloned().collect(),
            private: settings.private.clone(),
            hosts: settings.hosts.clone(),
            profiles,
            secrets,
            cache_bytes_max: settings.cache_bytes_max,
            ask: settings.ask,
            ask_wait: settings.ask_wait,
        })
    }

    /// The profile of a container that names none.
    pub fn default_profile(&self) -> &ProfileName {
        &self.default
    }

    /// Whether a caller may name this profile.
    pub fn is_granted(&self, name: &ProfileName) -> bool {
        name.is_none() || *name == self.default || self.granted.contains(name)
    }

    /// The profiles that a caller may name.
    pub fn granted(&self) -> BTreeSet<ProfileName> {
        let mut granted = self.granted.clone();
        granted.extend([ProfileName::none(), self.default.clone()]);
        granted
    }

    /// A profile; `None` for `none` and for one that no longer exists: nothing is reachable.
    pub fn profile(&self, name: &ProfileName) -> Option<&Arc<Profile>> {
        self.profiles.get(name)
    }

    /// Every profile but `none`, by name.
    pub fn profiles(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.profiles.values()
    }

    /// A secret, to see whether its value can be read.
    pub fn secret(&self, name: &SecretName) -> Option<&Arc<Secret>> {
        self.secrets.get(name)
    }

    /// The names of all secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.secrets.keys()
    }

    /// Most bytes that downloads may take on the host's disk.
    pub fn cache_bytes_max(&self) -> u64 {
        self.cache_bytes_max
    }

    /// How long a connection to a name that is not listed waits for an answer; `None`: nobody is
    /// asked.
    pub(crate) fn ask_wait(&self) -> Option<Duration> {
        (self.ask == Ask::Hold).then(|| self.ask_wait.duration())
    }

    /// Private ranges that names may resolve to.
    pub fn private(&self) -> &[Range] {
        &self.private
    }

    /// Where the operator has this name and port go, whatever a resolver says.
    pub fn fixed_address(&self, name: &HostName, port: u16) -> Option<SocketAddr> {
        let of_port = |port: Option<u16>| self.hosts.get(&(name.clone(), port));
        let fixed = of_port(Some(port)).or_else(|| of_port(None))?;
        Some(SocketAddr::new(fixed.ip, fixed.port.unwrap_or(port)))
    }

    /// Whether the operator has fixed an address of this name.
    pub fn is_fixed(&self, name: &HostName) -> bool {
        self.hosts.keys().any(|(fixed, _)| fixed == name)
    }
}

fn unknown(place: &str, name: &ProfileName, sources: &Sources) -> PolicyError {
    let known: Vec<&str> = sources.keys().map(ProfileName::as_str).collect();
    PolicyError::Unknown {
        place: place.to_owned(),
        name: name.clone(),
        known: format!("none, {}", known.join(", ")),
    }
}

impl Profile {
    /// The profile's name.
    pub fn name(&self) -> &ProfileName {
        &self.name
    }

    /// The bounds of one container.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Which variables its containers get.
    pub fn env(&self) -> ProfileEnv {
        self.env
    }

    /// Whether every public host is allowed that is not denied.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// What is listed, for people and models to read.
    pub fn allowed(&self) -> Vec<(Pattern, Arc<Grant>)> {
        let groups = self.exact.values().chain(self.below.values());
        let entries = groups.flatten();
        let mut allowed: Vec<_> = entries
            .map(|entry| (entry.pattern.clone(), Arc::clone(&entry.grant)))
            .collect();
        allowed.sort_by(|(first, _), (second, _)| first.cmp(second));
        allowed
    }

    /// What a host gets that somebody has allowed when asked.
    pub(crate) fn asked(&self) -> &Arc<Grant> {
        &self.asked
    }

    /// Decides about a connection to this name and port.
    pub fn decide(&self, name: &HostName, port: u16) -> Result<Arc<Grant>, Refusal> {
        if let Some(pattern) = self.denial(name, port) {
            return Err(Refusal::Denied(pattern.clone()));
        }
        let mut ports = BTreeSet::new();
        for entry in self.entries(name) {
            if entry.pattern.ports().any(|own| own == port) {
                return Ok(Arc::clone(&entry.grant));
            }
            ports.extend(entry.pattern.ports());
        }
        if self.is_open {
            return Ok(Arc::clone(&self.open));
        }
        if ports.is_empty() {
            return Err(Refusal::NotListed);
        }
        Err(Refusal::Port(ports.into_iter().collect()))
    }

    /// The ports on which a name is reachable; empty if it is not.
    pub fn ports(&self, name: &HostName) -> BTreeSet<u16> {
        let listed = self.entries(name).flat_map(|entry| entry.pattern.ports());
        let mut ports: BTreeSet<u16> = listed.collect();
        if self.is_open {
            ports.extend(crate::pattern::PORTS_DEFAULT);
        }
        ports.retain(|port| self.denial(name, *port).is_none());
        ports
    }

    /// Variables that programs want to see set before they start, with
    /// [a word that means nothing](crate::INSIDE_WORD).
    pub fn variables_inside(&self) -> BTreeSet<&InsideName> {
        let groups = self.exact.values().flatten();
        groups
            .filter_map(|entry| entry.grant.secret.as_ref()?.inside())
            .collect()
    }

    /// Whether the name is listed itself, and not only by a wildcard.
    pub(crate) fn lists_exactly(&self, name: &HostName) -> bool {
        self.exact.contains_key(name)
    }

    fn entries<'a>(&'a self, name: &'a HostName) -> impl Iterator<Item = &'a Entry> {
        let exact = self.exact.get(name).into_iter();
        let above = name.parents().filter_map(|name| self.below.get(name));
        exact.chain(above).flatten()
    }

    /// A denial without a port counts for every port.
    fn denial(&self, name: &HostName, port: u16) -> Option<&Pattern> {
        let exact = self.denied_exact.get(name).into_iter();
        let above = name
            .parents()
            .filter_map(|name| self.denied_below.get(name));
        let mut patterns = exact.chain(above).flatten();
        patterns.find(|pattern| pattern.port.is_none_or(|own| own == port))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => f.write_str("not listed"),
            Self::Denied(pattern) => write!(f, "denied by {pattern}"),
            Self::Port(ports) => {
                f.write_str("listed with other ports:")?;
                ports.iter().try_for_each(|port| write!(f, " {port}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
