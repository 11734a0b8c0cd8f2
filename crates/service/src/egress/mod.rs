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

mod ask;
mod assigned;
mod container;
mod lookup;
mod offer;
mod owner;
mod purpose;
mod record;
mod report;
mod stream;
mod trust;
mod variables;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use hotcell_domain::{Caller, ContainerSpec, Name, Network, PolicyError, Principal};
use hotcell_egress::{Broker, Policy, ProfileName, Settings};
use tokio::sync::OnceCell;

pub use self::ask::{EgressMeans, EgressQuestion};
pub use self::assigned::{AssignedEgress, PrincipalEgress};
pub(crate) use self::container::ContainerEgress;
pub use self::offer::EgressOffer;
use self::offer::Offers;
pub use self::report::{EgressDenial, EgressReport};
use crate::status::WHOLE;
use crate::{Action, Service, ServiceError};

/// The egress profile of a container that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EgressChoice {
    /// The default of the principal, else of the image, else of the server.
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
        let view = inner.environment.egress.describe(&caller.principal);
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
    offers: Offers,
}

/// The operator's settings, and what they compile to.
struct Current {
    settings: Settings,
    assigned: AssignedEgress,
    policy: Policy,
}

/// What decides about the profiles of new containers.
pub(crate) struct EgressSettings {
    egress: Settings,
    assigned: AssignedEgress,
}

impl EgressSettings {
    pub(crate) fn of(settings: &crate::Settings) -> Self {
        Self {
            egress: settings.egress.clone(),
            assigned: settings.assigned.clone(),
        }
    }
}

impl Egress {
    pub(crate) fn new(
        settings: EgressSettings,
        directory: Option<PathBuf>,
    ) -> Result<Self, ServiceError> {
        Ok(Self {
            directory,
            current: RwLock::new(Arc::new(Current::compile(settings)?)),
            broker: OnceCell::new(),
            offers: Offers::default(),
        })
    }

    /// Prepares other settings. Nothing has changed until they are [used](Self::replace).
    pub(crate) fn prepare(settings: EgressSettings) -> Result<Prepared, ServiceError> {
        let for_broker = compile(&settings.egress)?;
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
        principal: &Principal,
        spec: &ContainerSpec,
    ) -> Result<Option<Name>, ServiceError> {
        let (current, network) = (self.current(), spec.network);
        let default = current
            .assigned
            .default_profile(principal, Some(&spec.image));
        let default = default.unwrap_or(current.policy.default_profile());
        let profile = match choice {
            EgressChoice::Default => default.clone(),
            EgressChoice::Set(profile) => profile.clone(),
            EgressChoice::Asked(name) => current.find_granted(name, principal, default)?,
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
    pub(crate) fn describe(&self, principal: &Principal) -> EgressView {
        let current = self.current();
        let default = current.assigned.default_profile(principal, None);
        let default = default.unwrap_or(current.policy.default_profile());
        let names = current.granted(principal, default);
        EgressView {
            default: default.to_string(),
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
        let policy = compile(&self.current().settings)?;
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
    fn compile(settings: EgressSettings) -> Result<Self, ServiceError> {
        let policy = compile(&settings.egress)?;
        settings.assigned.check(&policy)?;
        Ok(Self {
            settings: settings.egress,
            assigned: settings.assigned,
            policy,
        })
    }

    /// The profiles that a principal may name: those of its own list or else the server's, and
    /// besides `none` and the profile that it gets without naming one.
    fn granted(&self, principal: &Principal, default: &ProfileName) -> BTreeSet<ProfileName> {
        let own = self.assigned.granted(principal);
        let mut granted: BTreeSet<_> = match own {
            Some(own) => own.iter().cloned().collect(),
            None => self.policy.granted(),
        };
        granted.extend([ProfileName::none(), default.clone()]);
        granted
    }

    fn find_granted(
        &self,
        name: &Name,
        principal: &Principal,
        default: &ProfileName,
    ) -> Result<ProfileName, ServiceError> {
        let granted = self.granted(principal, default);
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

fn compile(settings: &Settings) -> Result<Policy, ServiceError> {
    Policy::compile(settings).map_err(|error| ServiceError::Invalid {
        reason: error.to_string(),
    })
}

/// The profiles that a caller may name.
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
mod tests;
