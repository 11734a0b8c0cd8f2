//! Removes unwanted and unhealthy containers, and all of them when the server stops.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::ContainerId;
use hotcell_engine::EngineError;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Pool;

/// The pause after a failed removal.
const AGAIN: Duration = Duration::from_secs(30);

/// How long a stop waits for pending creations, one of which may be pulling an image.
const CREATIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// Concurrent removals when the pool is drained.
const REMOVALS_MAX: usize = 16;

/// Rounds of retrying failed removals.
const ROUNDS_MAX: usize = 3;

impl Pool {
    /// Removes a container that is being created, or is claimed.
    pub(super) fn reject(self: &Arc<Self>, id: &ContainerId, set: usize) {
        if self.slots().reject(id) {
            self.remove_in_background(id.clone(), set);
        }
    }

    /// Removes a container whose slot is marked for removal, then has the slot refilled.
    pub(super) fn remove_in_background(self: &Arc<Self>, id: ContainerId, set: usize) {
        if let Some(warm_set) = self.sets.get(set) {
            warm_set.changed.notify_one();
        }
        let pool = Arc::clone(self);
        self.environment.tasks.spawn(async move {
            while let Err(error) = pool.remove(&id).await {
                tracing::error!(container.id = %id, %error, "a warm container cannot be removed");
                tokio::time::sleep(AGAIN).await;
            }
            if let Some(warm_set) = pool.sets.get(set) {
                warm_set.changed.notify_one();
            }
        });
    }

    /// Removes a container, then its row, in this order: a crash in between leaves a row from which
    /// the next server continues.
    async fn remove(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.environment.destroy(id).await?;
        if let Err(error) = self.environment.store.forget_warm(id.clone()).await {
            self.environment.metrics.store_failed();
            tracing::error!(container.id = %id, %error, "a warm container is not forgotten");
        }
        self.slots().remove(id);
        // Last: a caller that waits for budget then checks at once whether more will be freed.
        self.environment.budget.release(id);
        Ok(())
    }

    /// Stops creating and handing out containers, and removes all of them. What cannot be removed
    /// is left to the next server.
    pub(crate) async fn drain(self: &Arc<Self>) {
        let (creating, mut left) = self.slots().close();
        self.closing.cancel();
        self.creators.close();
        // A container that is still being created could outlive its removal.
        let made = tokio::time::timeout(CREATIONS_TIMEOUT, self.creators.wait());
        match made.await {
            Ok(()) => left.extend(creating),
            Err(_) => {
                tracing::warn!(
                    "warm containers are still being made; the next server removes them"
                );
            }
        }
        for _ in 0..ROUNDS_MAX {
            left = self.remove_all(left).await;
            if left.is_empty() {
                return;
            }
            tracing::error!(left = left.len(), "warm containers could not be removed");
        }
    }

    /// Removes containers, a bounded number at a time; returns those that could not be removed.
    async fn remove_all(self: &Arc<Self>, ids: Vec<ContainerId>) -> Vec<ContainerId> {
        let turns = Arc::new(Semaphore::new(REMOVALS_MAX));
        let mut removals = JoinSet::new();
        for id in ids {
            let (pool, turns) = (Arc::clone(self), Arc::clone(&turns));
            removals.spawn(async move {
                let _turn = turns.acquire().await;
                pool.remove(&id).await.err().map(|_| id)
            });
        }
        removals.join_all().await.into_iter().flatten().collect()
    }
}
