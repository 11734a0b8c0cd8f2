//! Refills each set.
//!
//! One task per set creates what is missing: several containers at once while that succeeds, one at
//! a time with growing pauses while it fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_agent_client::{Feature, Interpreter};
use hotcell_domain::ContainerId;
use hotcell_engine::{Abandonment, Progress, error_chain};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::watch::CHECK_TIMEOUT;
use super::{Pool, WarmContainer, WarmSet};
use crate::ServiceError;
use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::container::{CreateError, Creation, create};
use crate::exec::environment;
use crate::space::LOOK_INTERVAL;

/// Containers of one set that are created concurrently.
const CREATIONS_MAX: usize = 4;

/// The pause after a failed creation; it grows with each failure.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// The pause before the next creation after a container was claimed: whoever claimed it is about to use it, and
/// has the processors for that first.
const PAUSE_AFTER_CLAIM: Duration = Duration::from_millis(10);

/// The command name for which the interpreter is kept warm.
const PYTHON: &str = "python3";

/// Pending creations of one set.
type Creations = JoinSet<Result<(), CreateError>>;

/// Whether creations of a set succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refill {
    /// Nothing has been created yet: the first creation may have to pull the image for all others.
    Untried,
    Working,
    Failing,
}

impl Pool {
    /// Starts filling every set, and keeping it up to date with its image.
    pub(crate) fn start(self: &Arc<Self>) {
        for set in 0..self.sets.len() {
            let work = Arc::clone(self).keep_full(set);
            let work = self.creators.track_future(work);
            self.environment.tasks.spawn(work);
            let look = Arc::clone(self).keep_fresh(set);
            self.environment.tasks.spawn(look);
        }
    }

    async fn keep_full(self: Arc<Self>, set: usize) {
        let mut creations = JoinSet::new();
        let fill = self.fill(set, &mut creations);
        self.closing.run_until_cancelled(fill).await;
        // Waits for pending creations: an engine only cleans up abandoned ones while this process
        // lives.
        while creations.join_next().await.is_some() {}
    }

    /// Creates missing containers, for ever.
    async fn fill(self: &Arc<Self>, set: usize, creations: &mut Creations) {
        let warm_set = &self.sets[set];
        let mut pause = Backoff::between(PAUSE_FIRST, PAUSE_LONGEST);
        let mut refill = Refill::Untried;
        let mut freed = self.environment.budget.freed();
        loop {
            freed.mark_unchanged();
            if warm_set.was_useful.swap(false, Ordering::Relaxed) {
                pause.reset();
            }
            if warm_set.lost_early.swap(false, Ordering::Relaxed) {
                warm_set.pause(&mut pause).await;
            }
            while creations.len() < refill.creations_max()
                && let Some(id) = self.begin(set)
            {
                let making = Arc::clone(self).create(set, id);
                creations.spawn(self.creators.track_future(making));
            }
            tokio::select! {
                Some(made) = creations.join_next() => {
                    refill = warm_set.note(refill, made);
                    if refill == Refill::Failing {
                        warm_set.pause(&mut pause).await;
                    }
                }
                () = warm_set.changed.notified() => tokio::time::sleep(PAUSE_AFTER_CLAIM).await,
                // Budget was released: there may be room now.
                _ = freed.changed() => {}
                () = tokio::time::sleep(LOOK_INTERVAL), if self.environment.has_room().is_err() => {}
            }
        }
    }

    /// The id of a container that is to be created, if one is missing and there is room in the
    /// budget and on the disk.
    fn begin(&self, set: usize) -> Option<ContainerId> {
        let environment = &self.environment;
        if environment.has_room().is_err() {
            return None;
        }
        let id = ContainerId::from_parts(environment.clock.unix_ms(), environment.random.bytes());
        let wanted = self.sets[set].wanted;
        let mut slots = self.slots();
        if !slots.begin(set, wanted, &id) {
            return None;
        }
        if !self.hold(set, &id) {
            slots.remove(&id);
            return None;
        }
        Some(id)
    }

    /// Creates a container and makes it ready. On `Err` its removal has begun.
    async fn create(self: Arc<Self>, set: usize, id: ContainerId) -> Result<(), CreateError> {
        let began = Instant::now();
        let given_up = self.slots().given_up(&id);
        let mut made = self.create_recorded(set, &id, &given_up).await;
        if given_up.is_abandoned() {
            made = Err(CreateError::GivenUp);
        }
        let is_put = made.as_ref().is_ok_and(|warm| self.put(warm));
        if is_put {
            self.environment.metrics.warm_refilled(began.elapsed());
        } else {
            self.reject(&id, set);
        }
        made.map(drop)
    }

    async fn create_recorded(
        &self,
        set: usize,
        id: &ContainerId,
        given_up: &Abandonment,
    ) -> Result<Arc<WarmContainer>, CreateError> {
        let environment = &self.environment;
        let spec = &self.sets[set].spec;
        let created_unix_ms = environment.clock.unix_ms();
        let engine = Arc::clone(&environment.engine);
        let store = &environment.store;
        let noted = store.insert_warm(id.clone(), created_unix_ms, environment.engine_id.clone());
        noted.await?;
        let metrics = environment.metrics.agent.clone();
        let connection = Arc::new(Connection::new(engine, id.clone(), metrics));
        let creation = Creation {
            spec: spec.clone(),
            progress: Progress::default(),
            abandonment: given_up.clone(),
        };
        let container = create(environment, id, &creation, &connection).await?;
        self.warm_up(&connection).await?;
        Ok(WarmContainer::new(
            set,
            connection,
            container,
            created_unix_ms,
        ))
    }

    /// Prepares a container whose agent has answered. Whatever should be running before a caller
    /// comes is started here.
    pub(super) async fn warm_up(&self, connection: &Connection) -> Result<(), ServiceError> {
        if self.is_healthy(connection, CHECK_TIMEOUT).await {
            warm_python_up(connection).await;
            return Ok(());
        }
        Err(ServiceError::Unavailable {
            reason: "the container does not answer".to_owned(),
            source: None,
        })
    }
}

/// Starts a warm Python interpreter, if the image has one. Failure is harmless.
async fn warm_python_up(connection: &Connection) {
    let Ok(connected) = connection.get().await else {
        return;
    };
    let agent = &connected.agent;
    if !agent.has(Feature::WarmPython) {
        return;
    }
    let env = environment(agent.hello());
    let asked = agent.warm_up(Interpreter::Python, PYTHON.as_bytes(), &env);
    if let Ok(Err(error)) = tokio::time::timeout(CHECK_TIMEOUT, asked).await {
        connection.report(&connected, &error);
    }
}

impl WarmSet {
    /// Waits, or until a caller's container was created successfully.
    async fn pause(&self, pause: &mut Backoff) {
        tokio::select! {
            () = pause.wait() => {}
            () = self.succeeded.notified() => {}
        }
    }

    /// Evaluates a finished creation, and logs a change between success and failure.
    fn note(&self, before: Refill, made: Result<Result<(), CreateError>, JoinError>) -> Refill {
        let image = &self.spec.value().image;
        let failure = match made {
            // This says nothing about whether the next creation will succeed.
            Ok(Err(CreateError::GivenUp)) => return before,
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error_chain(&error)),
            Err(error) => Some(error.to_string()),
        };
        match (before, failure) {
            (Refill::Failing, None) => {
                tracing::info!(%image, "warm containers can be made again");
                Refill::Working
            }
            (Refill::Working | Refill::Untried, None) => Refill::Working,
            (Refill::Failing, Some(_)) => Refill::Failing,
            (Refill::Working | Refill::Untried, Some(error)) => {
                tracing::warn!(%image, error, "warm containers cannot be made; it is tried again");
                Refill::Failing
            }
        }
    }
}

impl Refill {
    fn creations_max(self) -> usize {
        match self {
            Self::Working => CREATIONS_MAX,
            Self::Untried | Self::Failing => 1,
        }
    }
}
