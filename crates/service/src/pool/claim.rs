//! Handing a container out, once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::{ContainerSpec, Phase};
use hotcell_engine::Container;
use hotcell_store::ContainerRow;

use super::{Pool, WarmContainer};
use crate::connection::Connection;

/// Containers that are tried before one is made.
const CLAIMS_MAX: usize = 3;

/// How long a container may take to show that it is well when somebody waits for it. It
/// answers in less than a millisecond, unless its host is very busy: then to make another
/// takes longer than to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A container that is nobody else's. Whoever has it must say what became of it.
#[must_use = "a claim that is dropped keeps its container from everybody"]
pub(crate) struct Claim {
    pool: Arc<Pool>,
    warm: Arc<WarmContainer>,
}

impl Pool {
    /// Takes a container that fits, is of the current image and is well, if there is one.
    /// Those that turn out not to be so are removed. None is taken while the engine does not
    /// say what the current image is: whoever asks then hears what it says to a new one.
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

    /// Counts a container that was made although it is of a set; so such containers can
    /// be made.
    pub(crate) fn count_miss(&self, spec: &ContainerSpec) {
        if let Some(set) = self.set_of(spec) {
            self.sets[set].misses.fetch_add(1, Ordering::Relaxed);
            self.environment.metrics.warm_missed();
        }
    }

    /// Such a container has been made for somebody: whatever was wrong may be over.
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

    /// What a request for a container becomes when it is this one.
    pub(crate) fn row(&self, asked: &ContainerRow) -> ContainerRow {
        ContainerRow {
            id: self.warm.id.clone(),
            image_digest: self.warm.container.image_digest.clone(),
            is_warm: true,
            ..asked.clone()
        }
    }

    /// It is somebody's, and known as that in memory and in the store.
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

    /// Nobody has used it: it is as ready as before.
    pub(crate) fn give_back(self) {
        if !self.pool.put(&self.warm) {
            self.discard();
        }
    }

    /// It is of no use, or its fate is not certain.
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
