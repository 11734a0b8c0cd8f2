//! One container's egress: its name server, its connections, and what was refused.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::HostName;
use crate::ask::{Asked, Passage, Question};
use crate::broker::Broker;
use crate::denial::{Denial, Reason};
use crate::dns::{Answer, Kind, Query};
use crate::meter::Meter;
use crate::names::{Names, REFUSAL, reverse};
use crate::policy::{Grant, Profile, ProfileName};
use crate::resolve::DialError;

/// Denials that a container's report remembers; older ones go.
const DENIALS_MAX: usize = 256;

/// Ports on which the broker answers for refused names.
pub const REFUSAL_PORTS: [u16; 2] = [443, 80];

/// Makes the agent listen inside the container.
#[async_trait]
pub trait Listeners: Send + Sync {
    /// Listens for a name at an address of its own. Idempotent. `false` if it cannot, for example
    /// because a process of the container has the port.
    async fn listen(&self, name: &HostName, address: SocketAddrV4) -> bool;
}

/// Hears what happened, for the audit log and metrics.
pub trait Observer: Send + Sync {
    /// A connection was opened.
    fn opened(&self, opened: &Opened);
    /// A connection or request was refused.
    fn denied(&self, denial: &Denial);
    /// A connection waits for somebody's answer.
    fn asked(&self, question: &Question);
    /// A connection has ended.
    fn closed(&self, opened: &Opened, down: u64, up: u64);
}

/// A connection that was opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// The entry of the profile that allows it.
    pub rule: String,
}

/// What a connection inside was made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The address of a name.
    Name(HostName, u16),
    /// The address of refused names.
    Refused(u16),
}

/// One container's egress. The profile stays; what it allows follows the policy.
pub struct Guest {
    pub(crate) broker: Arc<Broker>,
    pub(crate) profile: ProfileName,
    pub(crate) meter: Arc<Meter>,
    listeners: Arc<dyn Listeners>,
    pub(crate) observer: Arc<dyn Observer>,
    connections: Arc<Semaphore>,
    connections_max: u16,
    state: Mutex<State>,
    /// Told when somebody has answered a question.
    pub(crate) answers: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) asked: Asked,
    names: Names,
    denials: VecDeque<(SystemTime, Denial)>,
    opened: u64,
}

/// What a container's egress did since a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Distinct denials and how often each happened.
    pub denied: Vec<(Denial, u64)>,
    /// Connections of the container's life.
    pub connections: u64,
    /// Bytes received over the container's life.
    pub bytes_down: u64,
    /// Bytes sent over the container's life.
    pub bytes_up: u64,
}

/// Permission for one connection, held while it is open.
pub(crate) struct Permit {
    _guest: OwnedSemaphorePermit,
    _server: OwnedSemaphorePermit,
}

impl Guest {
    /// The egress of a container with this profile.
    pub fn new(
        broker: Arc<Broker>,
        profile: ProfileName,
        listeners: Arc<dyn Listeners>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let limits = broker.profile(&profile);
        let limits = limits.map(|profile| *profile.limits()).unwrap_or_default();
        Self {
            meter: Arc::new(Meter::new(&limits)),
            connections: Arc::new(Semaphore::new(limits.connections.into())),
            connections_max: limits.connections,
            broker,
            profile,
            listeners,
            observer,
            state: Mutex::default(),
            answers: watch::Sender::default(),
        }
    }

    /// The profile as the policy has it now; `None` if it no longer exists.
    pub fn profile(&self) -> Option<Arc<Profile>> {
        self.broker.profile(&self.profile)
    }

    /// Takes over the address of a name that an earlier server assigned.
    pub fn restore(&self, name: HostName, address: Ipv4Addr) {
        self.state().names.restore(name, address);
    }

    /// Answers a DNS query; `None` if it is not one.
    pub async fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let query = Query::parse(message)?;
        let answer = self.lookup(&query).await;
        Some(query.answer(&answer))
    }

    async fn lookup(&self, query: &Query) -> Answer {
        let (Some(name), Some(profile)) = (&query.name, self.broker.profile(&self.profile)) else {
            return Answer::NoSuchName;
        };
        if query.kind == Kind::Ptr {
            return self.reverse_lookup(name);
        }
        let answer = match self.ports(name, &profile) {
            ports if !ports.is_empty() => self.reachable(name, &profile, ports).await,
            _ if name.is_special() => Answer::NoSuchName,
            _ => Answer::Address(REFUSAL),
        };
        if query.kind == Kind::Other && matches!(answer, Answer::Address(_)) {
            return Answer::NoData;
        }
        answer
    }

    /// The host resolves the name first, so that a name that does not exist does not exist inside.
    async fn reachable(&self, name: &HostName, profile: &Profile, ports: Vec<u16>) -> Answer {
        let known = self.state().names.address(name);
        let is_exact = profile.lists_exactly(name) || self.state().asked.is_allowed(name);
        let is_new = known.is_none() && !is_exact;
        if is_new && !self.state().names.admit_wildcard(Instant::now()) {
            return Answer::Refused;
        }
        match self.broker.check_name(name).await {
            Ok(()) => {}
            Err(DialError::Private) => return Answer::Address(REFUSAL),
            Err(DialError::NoSuchName) => return Answer::NoSuchName,
            // Offline: what was downloaded before is still there.
            Err(DialError::LookupFailed) if self.is_kept(name).await => {}
            Err(DialError::LookupFailed | DialError::Unreachable) => return Answer::Failed,
        }
        let assigned = self.state().names.assign(name);
        let Some(address) = assigned else {
            return Answer::Refused;
        };
        for port in ports {
            self.listeners
                .listen(name, SocketAddrV4::new(address, port))
                .await;
        }
        Answer::Address(address)
    }

    async fn is_kept(&self, name: &HostName) -> bool {
        self.broker
            .cache
            .has_host(&self.broker, name.as_str())
            .await
    }

    fn reverse_lookup(&self, name: &HostName) -> Answer {
        let state = self.state();
        let found = reverse(name).and_then(|address| state.names.name(address));
        found.cloned().map_or(Answer::NoSuchName, Answer::Name)
    }

    /// Decides about a connection, and counts it.
    pub(crate) fn permit(
        &self,
        name: &HostName,
        port: u16,
        passage: Passage,
    ) -> Result<(Arc<Grant>, Permit), Denial> {
        let denied = |reason| self.denial(name.as_str(), port, reason);
        let decision = self.decide(name, port, passage);
        let grant = decision.map_err(|refusal| denied(Reason::Policy(refusal)))?;
        if let Some(direction) = self.meter.exhausted() {
            return Err(denied(Reason::Budget(direction)));
        }
        let own = Arc::clone(&self.connections).try_acquire_owned();
        let shared = Arc::clone(&self.broker.connections).try_acquire_owned();
        let (Ok(own), Ok(shared)) = (own, shared) else {
            return Err(denied(Reason::Connections(self.connections_max)));
        };
        self.state().opened += 1;
        let permit = Permit {
            _guest: own,
            _server: shared,
        };
        Ok((grant, permit))
    }

    pub(crate) fn denial(&self, host: &str, port: u16, reason: Reason) -> Denial {
        Denial {
            host: host.to_owned(),
            port,
            profile: self.profile.clone(),
            reason,
        }
    }

    /// Remembers a denial and tells of it.
    pub(crate) fn record(&self, denial: &Denial) {
        self.observer.denied(denial);
        let mut state = self.state();
        if state.denials.len() >= DENIALS_MAX {
            state.denials.pop_front();
        }
        state.denials.push_back((SystemTime::now(), denial.clone()));
    }

    /// What happened since a moment.
    pub fn report(&self, since: SystemTime) -> Report {
        let state = self.state();
        let mut denied: Vec<(Denial, u64)> = Vec::new();
        for (_, denial) in state.denials.iter().filter(|(at, _)| *at >= since) {
            match denied.iter_mut().find(|(known, _)| known == denial) {
                Some((_, count)) => *count += 1,
                None => denied.push((denial.clone(), 1)),
            }
        }
        Report {
            denied,
            connections: state.opened,
            bytes_down: self.meter.down(),
            bytes_up: self.meter.up(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
