//! The warm pool: containers that are ready before anybody asks for them.
//!
//! ```text
//!                                 claim
//! making ─▶ coming ─▶ ready ─▶ claimed ─▶ somebody's
//!                │        │  ◀──    │
//!                ▼        ▼  unused ▼
//! left by an earlier server ─▶ leaving ─▶ nothing left
//! ```
//!
//! For each *stock* (what a container is, but for its variables, which are each exec's) as
//! many as are wanted are kept ready: made, connected, watched, asked again and again whether
//! they are well. None is handed out that is of another image than its name stands for now.
//! A container is noted in the store as a warm one before its engine makes it,
//! and becomes somebody's in one transaction; so it is handed out once, and a server that
//! dies leaves it either in the pool or with its owner. What all containers may have together
//! is for callers first: the pool takes what is free, and gives it up for a caller.

mod claim;
mod current;
mod found;
mod leave;
mod refill;
mod room;
mod shelf;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_domain::{Admitted, ContainerId, ContainerSpec, Env, ImageRef};
use hotcell_engine::Container;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::claim::Claim;
use self::shelf::Shelf;
use crate::connection::Connection;
use crate::environment::Environment;
use crate::{ServiceError, Settings, Stock};

/// Everything that is kept ready.
pub(crate) struct Pool {
    environment: Arc<Environment>,
    stocks: Vec<Kept>,
    shelf: Mutex<Shelf>,
    /// Whatever makes containers.
    makers: TaskTracker,
    /// Nothing more is to be made.
    closing: CancellationToken,
}

/// One stock.
struct Kept {
    spec: Admitted<ContainerSpec>,
    wanted: usize,
    /// Something was taken or lost.
    changed: Notify,
    /// Somebody else has just made such a container.
    works: Notify,
    /// One was lost soon after it was made.
    is_frail: AtomicBool,
    /// One was of use.
    is_proven: AtomicBool,
    /// There was no room for another.
    is_cramped: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A container that is ready.
pub(crate) struct Warm {
    id: ContainerId,
    stock: usize,
    connection: Arc<Connection>,
    /// As its engine told it.
    container: Container,
    created_unix_ms: u64,
}

/// How a stock is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockView {
    /// What its containers are made of.
    pub image: ImageRef,
    /// How many shall be ready.
    pub wanted: u64,
    /// How many are.
    pub ready: u64,
    /// Containers that were ready when they were asked for.
    pub hits: u64,
    /// Containers that had to be made although they are of this stock.
    pub misses: u64,
}

impl Pool {
    /// An empty pool, which does nothing yet. Policy decides on each stock.
    pub(crate) fn new(environment: &Arc<Environment>) -> Result<Self, ServiceError> {
        let settings = &environment.settings;
        let wanted = settings.warm.iter().filter(|stock| stock.wanted > 0);
        let stocks = wanted.map(|stock| Kept::new(settings, stock));
        Ok(Self {
            environment: Arc::clone(environment),
            stocks: stocks.collect::<Result<_, _>>()?,
            shelf: Mutex::default(),
            makers: TaskTracker::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Whether a container is the pool's. One that has just become somebody's is in the
    /// registry before this is false.
    pub(crate) fn holds(&self, id: &ContainerId) -> bool {
        self.shelf().holds(id)
    }

    /// How each stock is.
    pub(crate) fn views(&self) -> Vec<StockView> {
        let stocks = self.stocks.iter().enumerate();
        let view = |(number, stock): (usize, &Kept)| StockView {
            image: stock.spec.value().image.clone(),
            wanted: stock.wanted as u64,
            ready: self.shelf().ready(number) as u64,
            hits: stock.hits.load(Ordering::Relaxed),
            misses: stock.misses.load(Ordering::Relaxed),
        };
        stocks.map(view).collect()
    }

    /// The stock whose containers are such. Variables are told to each exec and not to the
    /// engine, so they do not matter.
    fn stock_of(&self, spec: &ContainerSpec) -> Option<usize> {
        let bare = ContainerSpec {
            env: Env::default(),
            ..spec.clone()
        };
        let mut stocks = self.stocks.iter();
        stocks.position(|stock| *stock.spec.value() == bare)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn new(settings: &Settings, stock: &Stock) -> Result<Self, ServiceError> {
        let spec = ContainerSpec {
            limits: settings.default_limits,
            allow_root: settings.policy.allow_root,
            ..ContainerSpec::new(stock.image.clone())
        };
        let admitted = settings.policy.admit(spec);
        let spec = admitted.map_err(|refusal| ServiceError::Invalid {
            reason: format!("{} cannot be kept warm: {refusal}", stock.image),
        })?;
        Ok(Self {
            spec,
            wanted: stock.wanted,
            changed: Notify::new(),
            works: Notify::new(),
            is_frail: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            is_cramped: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }
}
