//! What containers reach: each container with a profile has a [`Guest`](hotcell_egress::Guest) that
//! answers its lookups and serves its connections.
//!
//! ```text
//! spawn ─▶ admit(profile) ─▶ row ─▶ ContainerEgress ─▶ owner task: listens, answers, serves
//!                                        ▲                  └─ agent lost: connects again, same names
//!                              exec: variables, report
//! ```
//!
//! The broker and its authority are made when the first container has a profile, so a server
//! without egress pays nothing for it.

mod container;
mod lookup;
mod owner;
mod purpose;
mod record;
mod report;
mod stream;
mod trust;
mod variables;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use hotcell_domain::{Caller, Name, Network, PolicyError};
use hotcell_egress::{Broker, Policy, ProfileName, Settings};
use tokio::sync::OnceCell;

pub(crate) use self::container::ContainerEgress;
pub use self::report::{EgressDenial, EgressReport};
use crate::status::WHOLE;
use crate::{Action, Service, ServiceError};

/// The egress profile of a container that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EgressChoice {
    /// The server's default.
    #[default]
    Default,
    /// One that the caller names. It must be granted.
    Asked(Name),
    /// One that the operator has set for this kind of container.
    Set(ProfileName),
}

impl Service {
    /// The profiles that a caller may name, and what each allows.
    pub fn egress(&self, caller: &Caller) -> EgressView {
        let (operation, inner) = self.begin(caller, Action::SystemStatus, &WHOLE);
        let view = inner.environment.egress.describe();
        // A read-only operation does not wait for its audit event.
        drop(operation.end());
        view
    }
}

/// The egress of all containers.
pub(crate) struct Egress {
    directory: Option<PathBuf>,
    current: RwLock<Arc<Current>>,
    broker: OnceCell<Arc<Broker>>,
}

/// The operator's settings, and what they compile to.
struct Current {
    settings: Settings,
    policy: Policy,
}

impl Egress {
    pub(crate) fn new(
        settings: Settings,
        directory: Option<PathBuf>,
    ) -> Result<Self, ServiceError> {
        Ok(Self {
            directory,
            current: RwLock::new(Arc::new(Current::compile(settings)?)),
            broker: OnceCell::new(),
        })
    }

    /// Prepares other settings. Nothing has changed until they are [used](Self::replace).
    pub(crate) fn prepare(settings: Settings) -> Result<Prepared, ServiceError> {
        let for_broker = Current::compile(settings.clone())?.policy;
        Ok(Prepared {
            current: Current::compile(settings)?,
            for_broker,
        })
    }

    /// Uses other settings for new containers, connections and requests.
    pub(crate) fn replace(&self, prepared: Prepared) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(prepared.current);
        if let Some(broker) = self.broker.get() {
            broker.replace_policy(prepared.for_broker);
        }
    }

    /// The profile of a new container; `None`: it reaches nothing.
    pub(crate) fn admit(
        &self,
        choice: &EgressChoice,
        network: Network,
    ) -> Result<Option<Name>, ServiceError> {
        let current = self.current();
        let profile = match choice {
            EgressChoice::Default => current.policy.default_profile().clone(),
            EgressChoice::Set(profile) => profile.clone(),
            EgressChoice::Asked(name) => current.granted(name)?,
        };
        // With a network its loopback is the host's: nobody may listen for names there.
        let is_networked = network == Network::Full;
        if is_networked && !profile.is_none() && matches!(choice, EgressChoice::Asked(_)) {
            let reason = "egress: a container with network \"full\" has no egress profile; leave one of both out";
            return Err(ServiceError::Invalid {
                reason: reason.to_owned(),
            });
        }
        let is_none = is_networked || profile.is_none();
        let name = (!is_none).then(|| Name::parse(profile.as_str()).ok());
        Ok(name.flatten())
    }

    /// What resource and tools say about the profiles that a caller may name.
    pub(crate) fn describe(&self) -> EgressView {
        let current = self.current();
        let names = current.policy.granted();
        EgressView {
            default: current.policy.default_profile().to_string(),
            profiles: names
                .iter()
                .map(|name| ProfileView::new(name, &current.settings))
                .collect(),
        }
    }

    /// The broker, which is made at the first call.
    async fn broker(&self) -> Result<Arc<Broker>, ServiceError> {
        let made = self.broker.get_or_try_init(|| self.open_broker()).await?;
        Ok(Arc::clone(made))
    }

    async fn open_broker(&self) -> Result<Arc<Broker>, ServiceError> {
        let unavailable =
            |source: Option<Box<dyn std::error::Error + Send + Sync>>| ServiceError::Unavailable {
                reason: "the server cannot prepare egress".to_owned(),
                source,
            };
        let directory = self.directory.clone().ok_or_else(|| unavailable(None))?;
        let policy = Current::compile(self.current().settings.clone())?.policy;
        let opened = tokio::task::spawn_blocking(move || Broker::open(policy, &directory)).await;
        let opened = opened.map_err(|error| unavailable(Some(Box::new(error))))?;
        let broker = opened.map_err(|error| unavailable(Some(Box::new(error))))?;
        Ok(Arc::new(broker))
    }

    fn current(&self) -> Arc<Current> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}

/// Settings that are good, but not used yet.
pub(crate) struct Prepared {
    current: Current,
    for_broker: Policy,
}

impl Current {
    fn compile(settings: Settings) -> Result<Self, ServiceError> {
        let policy = Policy::compile(&settings).map_err(|error| ServiceError::Invalid {
            reason: error.to_string(),
        })?;
        Ok(Self { settings, policy })
    }

    fn granted(&self, name: &Name) -> Result<ProfileName, ServiceError> {
        let granted = self.policy.granted();
        let found = granted.iter().find(|one| one.as_str() == name.as_str());
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = granted.iter().map(ProfileName::as_str).collect();
            ServiceError::Refused(PolicyError::Egress {
                profile: name.to_string(),
                allowed: names.join(", "),
            })
        })
    }
}

/// The profiles that callers may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressView {
    /// The profile of a container that names none.
    pub default: String,
    /// Those that may be named.
    pub profiles: Vec<ProfileView>,
}

/// What one profile allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileView {
    /// Its name.
    pub name: String,
    /// Hosts with the access to each, as the operator wrote them.
    pub allow: Vec<String>,
    /// Hosts that are refused whatever else allows them.
    pub deny: Vec<String>,
    /// Profiles whose entries it has too.
    pub include: Vec<String>,
    /// Whether every public host is allowed.
    pub is_open: bool,
}

impl ProfileView {
    fn new(name: &ProfileName, settings: &Settings) -> Self {
        let packages = hotcell_egress::ProfileSettings::packages();
        let built_in = (*name == ProfileName::packages()).then_some(&packages);
        let source = settings.profiles.get(name).or(built_in);
        let Some(source) = source else {
            return Self {
                name: name.to_string(),
                allow: Vec::new(),
                deny: Vec::new(),
                include: Vec::new(),
                is_open: false,
            };
        };
        let listed = source.lists.iter().flat_map(|list| list.hosts());
        let listed = listed.map(|host| format!("{host} ({})", source.access));
        let allowed = source.allow.iter();
        let allowed = allowed.map(|host| format!("{host} ({})", source.access));
        let rules = source.rules.iter();
        let rules = rules.map(|rule| format!("{} ({})", rule.host, rule.access));
        Self {
            name: name.to_string(),
            allow: listed.chain(allowed).chain(rules).collect(),
            deny: source.deny.iter().map(ToString::to_string).collect(),
            include: source.include.iter().map(ToString::to_string).collect(),
            is_open: source.open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(granted: &[&str]) -> Egress {
        let settings = Settings {
            granted: granted
                .iter()
                .map(|name| ProfileName::parse(name).unwrap())
                .collect(),
            ..Settings::default()
        };
        Egress::new(settings, None).unwrap()
    }

    fn asked(name: &str) -> EgressChoice {
        EgressChoice::Asked(Name::parse(name).unwrap())
    }

    #[test]
    fn a_profile_that_is_not_granted_is_denied_with_those_that_are() {
        let egress = egress(&[]);
        let refused = egress.admit(&asked("packages"), Network::None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "egress profile packages is not one of none (rule `egress.profiles`)"
        );
        assert_eq!(egress.admit(&asked("none"), Network::None).unwrap(), None);
        let set = EgressChoice::Set(ProfileName::packages());
        assert!(egress.admit(&set, Network::None).unwrap().is_some());
    }

    #[test]
    fn a_container_with_a_network_has_no_profile() {
        let egress = egress(&["packages"]);
        let packages = egress.admit(&asked("packages"), Network::None).unwrap();
        assert_eq!(packages.unwrap().as_str(), "packages");
        assert!(egress.admit(&asked("packages"), Network::Full).is_err());
        let set = EgressChoice::Set(ProfileName::packages());
        assert_eq!(egress.admit(&set, Network::Full).unwrap(), None);
    }

    #[test]
    fn settings_that_do_not_compile_change_nothing() {
        let egress = egress(&["packages"]);
        let unknown = Settings {
            default: ProfileName::parse("missing").unwrap(),
            ..Settings::default()
        };
        assert!(Egress::prepare(unknown).is_err());
        assert!(egress.admit(&asked("packages"), Network::None).is_ok());
        egress.replace(Egress::prepare(Settings::default()).unwrap());
        assert!(egress.admit(&asked("packages"), Network::None).is_err());
    }
}
