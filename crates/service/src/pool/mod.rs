//! The warm pool: containers that are created before anyone asks for them.
//!
//! ```text
//!                                 claim
//! absent ─▶ creating ─▶ ready ─▶ claimed ─▶ handed over
//!                │        │  ◀──    │
//!                ▼        ▼  unused ▼
//! left by an earlier server ─▶ removing ─▶ nothing left
//! ```
//!
//! Each *set* is one container spec, without environment variables (those are per exec), and the
//! number of containers to keep ready. Ready containers are created, connected, watched and
//! health-checked periodically. None is handed out whose image is not the one that its name
//! resolves to now. A container is recorded in the store as warm before its engine creates it, and
//! gets its owner in one transaction; so it is handed out once, and a server that dies leaves it
//! either in the pool or with its owner. The budget is for callers first: the pool takes what is
//! free, and gives it up for a caller.

mod adopt;
mod claim;
mod freshness;
mod refill;
mod remove;
mod room;
mod slots;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_domain::{Admitted, ContainerId, ContainerSpec, Env, ImageRef, Limits};
use hotcell_engine::Container;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::claim::Claim;
use self::slots::Slots;
use crate::connection::Connection;
use crate::environment::Environment;
use crate::{PoolSpec, ServiceError, Settings};

/// All sets and their containers.
pub(crate) struct Pool {
    environment: Arc<Environment>,
    sets: Vec<WarmSet>,
    slots: Mutex<Slots>,
    /// The tasks that create containers.
    creators: TaskTracker,
    /// Cancelled when the server stops: no more containers are created.
    closing: CancellationToken,
}

/// One container spec and how many containers of it to keep ready.
struct WarmSet {
    spec: Admitted<ContainerSpec>,
    wanted: usize,
    /// A container was taken or lost: the set may need another.
    changed: Notify,
    /// A caller's container of this spec was created: the cause of earlier failures may be gone.
    succeeded: Notify,
    /// A container was lost soon after it was created.
    lost_early: AtomicBool,
    /// A container was handed out.
    was_useful: AtomicBool,
    /// The budget had no room for another container. Logged only when it changes.
    is_out_of_room: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A container that is ready.
pub(crate) struct WarmContainer {
    id: ContainerId,
    set: usize,
    connection: Arc<Connection>,
    /// As the engine reported it.
    container: Container,
    created_unix_ms: u64,
}

/// The state of one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// The image of its containers.
    pub image: ImageRef,
    /// The resource limits of each container.
    pub limits: Limits,
    /// The number of containers to keep ready.
    pub wanted: u64,
    /// The number of containers that are ready.
    pub ready: u64,
    /// Requests that got a ready container.
    pub hits: u64,
    /// Requests that fit this set but had to create a container.
    pub misses: u64,
}

impl Pool {
    /// An empty pool, which does nothing until it is started. Fails if policy rejects a set.
    pub(crate) fn new(environment: &Arc<Environment>) -> Result<Self, ServiceError> {
        let settings = environment.settings();
        let wanted = settings.warm.iter().filter(|set| set.wanted > 0);
        let sets = wanted.map(|set| WarmSet::new(&settings, set));
        Ok(Self {
            environment: Arc::clone(environment),
            sets: sets.collect::<Result<_, _>>()?,
            slots: Mutex::default(),
            creators: TaskTracker::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Whether the pool has this container. A container that is handed over is in the registry
    /// before this becomes false.
    pub(crate) fn holds(&self, id: &ContainerId) -> bool {
        self.slots().holds(id)
    }

    /// The state of each set.
    pub(crate) fn views(&self) -> Vec<PoolView> {
        let sets = self.sets.iter().enumerate();
        let view = |(number, set): (usize, &WarmSet)| PoolView {
            image: set.spec.value().image.clone(),
            limits: set.spec.value().limits,
            wanted: set.wanted as u64,
            ready: self.slots().ready(number) as u64,
            hits: set.hits.load(Ordering::Relaxed),
            misses: set.misses.load(Ordering::Relaxed),
        };
        sets.map(view).collect()
    }

    /// The set that a spec belongs to. Environment variables are ignored: they are applied per
    /// exec, not by the engine.
    fn set_of(&self, spec: &ContainerSpec) -> Option<usize> {
        let bare = ContainerSpec {
            env: Env::default(),
            ..spec.clone()
        };
        let mut sets = self.sets.iter();
        sets.position(|set| *set.spec.value() == bare)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmSet {
    fn new(settings: &Settings, set: &PoolSpec) -> Result<Self, ServiceError> {
        let mut spec = settings.spec(set.image.clone());
        spec.limits = set.limits.unwrap_or(spec.limits);
        let admitted = settings.policy.admit(spec);
        let spec = admitted.map_err(|refusal| ServiceError::Invalid {
            reason: format!("{} cannot be kept warm: {refusal}", set.image),
        })?;
        Ok(Self {
            spec,
            wanted: set.wanted,
            changed: Notify::new(),
            succeeded: Notify::new(),
            lost_early: AtomicBool::new(false),
            was_useful: AtomicBool::new(false),
            is_out_of_room: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }
}
