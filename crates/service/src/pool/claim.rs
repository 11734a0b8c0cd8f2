//! Claims a warm container for one request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::{ContainerSpec, Phase};
use hotcell_engine::Container;
use hotcell_store::ContainerRow;

use super::{Pool, WarmContainer};
use crate::connection::Connection;

/// Warm containers that are tried before a new one is created.
const CLAIMS_MAX: usize = 3;

/// How long a claimed container may take to pass its health check. It usually answers in less than
/// a millisecond; on a very busy host, creating another one takes longer than waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A container that is reserved for one request. The holder must hand it over, give it back or
/// discard it.
#[must_use = "a claim that is dropped keeps its container from everybody"]
pub(crate) struct Claim {
    pool: Arc<Pool>,
    warm: Arc<WarmContainer>,
}

impl Pool {
    /// Claims a ready, healthy container that fits the spec and is of the current image, if there
    /// is one. Stale and unhealthy ones are removed. If the engine does not report the current
    /// image, nothing is claimed: creating a new container then reports the engine's error.
    pub(crate) async fn claim(self: &Arc<Self>, spec: &ContainerSpec) -> Option<Claim> {
        let set = self.set_of(spec)?;
        if self.slots().ready(set) == 0 {
            return None;
        }
        let current = self.current_image(set).await?;
        for _ in 0..CLAIMS_MAX {
            let warm = self.take(set, &current)?;
            let claim = Claim {
                pool: Arc::clone(self),
                warm,
            };
            if self
                .is_healthy(&claim.warm.connection, ANSWER_TIMEOUT)
                .await
            {
                return Some(claim);
            }
            self.note_loss(&claim.warm, "it does not answer");
            claim.discard();
        }
        None
    }

    /// Counts a container that had to be created although it fits a set.
    pub(crate) fn count_miss(&self, spec: &ContainerSpec) {
        if let Some(set) = self.set_of(spec) {
            self.sets[set].misses.fetch_add(1, Ordering::Relaxed);
            self.environment.metrics.warm_missed();
        }
    }

    /// Tells the set that such a container was created for a caller: the cause of earlier failures
    /// may be gone.
    pub(crate) fn note_success(&self, spec: &ContainerSpec) {
        if let Some(set) = self.set_of(spec) {
            self.sets[set].succeeded.notify_one();
        }
    }
}

impl Claim {
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.warm.connection)
    }

    /// The row of a request that gets this container.
    pub(crate) fn row(&self, asked: &ContainerRow) -> ContainerRow {
        ContainerRow {
            id: self.warm.id.clone(),
            image_digest: self.warm.container.image_digest.clone(),
            is_warm: true,
            ..asked.clone()
        }
    }

    /// Removes the container from the pool: memory and store already name its new owner.
    pub(crate) fn hand_over(self) -> Container {
        let (pool, warm) = (&self.pool, &self.warm);
        let set = &pool.sets[warm.set];
        set.hits.fetch_add(1, Ordering::Relaxed);
        set.was_useful.store(true, Ordering::Relaxed);
        let now_unix_ms = pool.environment.clock.unix_ms();
        let age = Duration::from_millis(now_unix_ms.saturating_sub(warm.created_unix_ms));
        pool.environment.metrics.warm_hit(age);
        pool.environment.budget.hand_over(&warm.id);
        pool.slots().remove(&warm.id);
        set.changed.notify_one();
        self.warm.container.clone()
    }

    /// Returns the container, unused, to the pool.
    pub(crate) fn give_back(self) {
        if !self.pool.put(&self.warm) {
            self.discard();
        }
    }

    /// Removes the container: it is unhealthy, or may already have an owner in the store.
    pub(crate) fn discard(self) {
        self.pool.reject(&self.warm.id, self.warm.set);
    }
}

impl WarmContainer {
    pub(super) fn new(
        set: usize,
        connection: Arc<Connection>,
        container: Container,
        created_unix_ms: u64,
    ) -> Arc<Self> {
        debug_assert_eq!(container.phase, Phase::Running);
        Arc::new(Self {
            id: container.id.clone(),
            set,
            connection,
            container,
            created_unix_ms,
        })
    }
}
