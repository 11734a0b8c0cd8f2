//! The warm pool: containers that are ready before anybody asks for them.
//!
//! ```text
//!                                 claim
//! making ─▶ creating ─▶ ready ─▶ claimed ─▶ somebody's
//!                │        │  ◀──    │
//!                ▼        ▼  unused ▼
//! left by an earlier server ─▶ removing ─▶ nothing left
//! ```
//!
//! For each *set* (what a container is, but for its variables, which are each exec's) as
//! many as are wanted are kept ready: made, connected, watched, asked again and again whether
//! they are well. None is handed out that is of another image than its name stands for now.
//! A container is noted in the store as a warm one before its engine makes it,
//! and becomes somebody's in one transaction; so it is handed out once, and a server that
//! dies leaves it either in the pool or with its owner. What all containers may have together
//! is for callers first: the pool takes what is free, and gives it up for a caller.

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

/// Everything that is kept ready.
pub(crate) struct Pool {
    environment: Arc<Environment>,
    sets: Vec<WarmSet>,
    slots: Mutex<Slots>,
    /// Whatever makes containers.
    creators: TaskTracker,
    /// Nothing more is to be made.
    closing: CancellationToken,
}

/// One set.
struct WarmSet {
    spec: Admitted<ContainerSpec>,
    wanted: usize,
    /// Something was taken or lost.
    changed: Notify,
    /// Somebody else has just made such a container.
    succeeded: Notify,
    /// One was lost soon after it was made.
    lost_early: AtomicBool,
    /// One was of use.
    was_useful: AtomicBool,
    /// There was no room for another.
    is_out_of_room: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A container that is ready.
pub(crate) struct WarmContainer {
    id: ContainerId,
    set: usize,
    connection: Arc<Connection>,
    /// As its engine told it.
    container: Container,
    created_unix_ms: u64,
}

/// How a set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// What its containers are made of.
    pub image: ImageRef,
    /// How much each of them may use.
    pub limits: Limits,
    /// How many shall be ready.
    pub wanted: u64,
    /// How many are.
    pub ready: u64,
    /// Containers that were ready when they were asked for.
    pub hits: u64,
    /// Containers that had to be made although they are of this set.
    pub misses: u64,
}

impl Pool {
    /// An empty pool, which does nothing yet. Policy decides on each set.
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

    /// Whether a container is the pool's. One that has just become somebody's is in the
    /// registry before this is false.
    pub(crate) fn holds(&self, id: &ContainerId) -> bool {
        self.slots().holds(id)
    }

    /// How each set is.
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

    /// The set whose containers are such. Variables are told to each exec and not to the
    /// engine, so they do not matter.
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
