//! What a container may reach: profiles, compiled from the operator's settings.

mod access;
mod lists;
mod settings;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::HostName;
use crate::address::Range;
use crate::pattern::{Pattern, PatternError};

pub use self::access::{Access, AccessError, Line};
pub use self::lists::{List, ListError};
pub use self::settings::{
    FixedAddress, FixedAddressError, Limits, ProfileName, ProfileNameError, ProfileSettings,
    RuleSettings, Settings,
};

/// Profiles that include each other, one in the next.
const INCLUDE_DEPTH_MAX: usize = 8;

/// Every profile, ready to decide. A reload compiles a new one and replaces the old one as a whole.
#[derive(Debug)]
pub struct Policy {
    default: ProfileName,
    granted: BTreeSet<ProfileName>,
    private: Vec<Range>,
    hosts: BTreeMap<(HostName, Option<u16>), FixedAddress>,
    profiles: BTreeMap<ProfileName, Arc<Profile>>,
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
    limits: Limits,
}

/// A pattern and what it grants.
#[derive(Clone, Debug)]
struct Entry {
    pattern: Pattern,
    grant: Arc<Grant>,
}

/// What a connection may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The entry that allows it, as it is shown in events.
    pub rule: String,
    /// Which requests it may carry.
    pub access: Access,
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
        "[egress.{profile}] lists {first} with access {first_access} and {second} with access {second_access}; one request must have one access"
    )]
    Ambiguous {
        /// The profile.
        profile: ProfileName,
        /// One of the two.
        first: Pattern,
        /// Its access.
        first_access: Access,
        /// The other.
        second: Pattern,
        /// Its access.
        second_access: Access,
    },
    /// A host of a built-in list is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
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
        let mut profiles = BTreeMap::new();
        for name in sources.keys() {
            profiles.insert(name.clone(), Arc::new(Profile::compile(name, &sources)?));
        }
        Ok(Self {
            default: settings.default.clone(),
            granted: settings.granted.iter().cloned().collect(),
            private: settings.private.clone(),
            hosts: settings.hosts.clone(),
            profiles,
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

fn unknown(
    place: &str,
    name: &ProfileName,
    sources: &BTreeMap<ProfileName, ProfileSettings>,
) -> PolicyError {
    let known: Vec<&str> = sources.keys().map(ProfileName::as_str).collect();
    PolicyError::Unknown {
        place: place.to_owned(),
        name: name.clone(),
        known: format!("none, {}", known.join(", ")),
    }
}

impl Profile {
    fn compile(
        name: &ProfileName,
        sources: &BTreeMap<ProfileName, ProfileSettings>,
    ) -> Result<Self, PolicyError> {
        let own = sources.get(name);
        let mut profile = Self {
            name: name.clone(),
            exact: HashMap::new(),
            below: HashMap::new(),
            denied_exact: HashMap::new(),
            denied_below: HashMap::new(),
            is_open: false,
            limits: own.map(|own| own.limits).unwrap_or_default(),
        };
        profile.add(name, sources, 0)?;
        profile.check()?;
        Ok(profile)
    }

    /// Adds the entries of `from`, then those of what it includes.
    fn add(
        &mut self,
        from: &ProfileName,
        sources: &BTreeMap<ProfileName, ProfileSettings>,
        depth: usize,
    ) -> Result<(), PolicyError> {
        if depth > INCLUDE_DEPTH_MAX {
            return Err(PolicyError::Include(self.name.clone()));
        }
        let place = || format!("include of [egress.{}]", self.name);
        let source = sources
            .get(from)
            .ok_or_else(|| unknown(&place(), from, sources))?;
        self.is_open |= source.open;
        for host in source.lists.iter().flat_map(|list| list.hosts()) {
            self.allow(from, Pattern::parse(host)?, &source.access);
        }
        for pattern in &source.allow {
            self.allow(from, pattern.clone(), &source.access);
        }
        for rule in &source.rules {
            self.allow(from, rule.host.clone(), &rule.access);
        }
        for pattern in &source.deny {
            self.deny(pattern.clone());
        }
        for included in &source.include {
            self.add(included, sources, depth + 1)?;
        }
        Ok(())
    }

    fn allow(&mut self, from: &ProfileName, pattern: Pattern, access: &Access) {
        let grant = Arc::new(Grant {
            rule: format!("{from}: {pattern}"),
            access: access.clone(),
        });
        let entries = if pattern.is_wildcard {
            self.below.entry(pattern.name.as_str().into()).or_default()
        } else {
            self.exact.entry(pattern.name.clone()).or_default()
        };
        entries.push(Entry { pattern, grant });
    }

    fn deny(&mut self, pattern: Pattern) {
        let patterns = if pattern.is_wildcard {
            let name = pattern.name.as_str().into();
            self.denied_below.entry(name).or_default()
        } else {
            self.denied_exact.entry(pattern.name.clone()).or_default()
        };
        patterns.push(pattern);
    }

    /// Finds entries that could match the same request and grant different access.
    fn check(&self) -> Result<(), PolicyError> {
        let groups = self.exact.values().chain(self.below.values());
        for entry in groups.flatten() {
            let own = if entry.pattern.is_wildcard {
                self.below.get(entry.pattern.name.as_str())
            } else {
                self.exact.get(&entry.pattern.name)
            };
            let above = entry.pattern.name.parents();
            let above = above.filter_map(|name| self.below.get(name));
            for other in own.into_iter().chain(above).flatten() {
                self.check_pair(entry, other)?;
            }
        }
        Ok(())
    }

    fn check_pair(&self, first: &Entry, second: &Entry) -> Result<(), PolicyError> {
        let shares_port = first
            .pattern
            .ports()
            .any(|port| second.pattern.ports().any(|other| other == port));
        if !shares_port || first.grant.access == second.grant.access {
            return Ok(());
        }
        Err(PolicyError::Ambiguous {
            profile: self.name.clone(),
            first: first.pattern.clone(),
            first_access: first.grant.access.clone(),
            second: second.pattern.clone(),
            second_access: second.grant.access.clone(),
        })
    }

    /// The profile's name.
    pub fn name(&self) -> &ProfileName {
        &self.name
    }

    /// The bounds of one container.
    pub fn limits(&self) -> &Limits {
        &self.limits
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
            return Ok(Arc::new(Grant {
                rule: format!("{}: open", self.name),
                access: Access::Full,
            }));
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
