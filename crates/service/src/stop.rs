//! Stops the service, and ends many containers at once.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::Phase;
use hotcell_ledger::EventName;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::container::{EndMode, LiveContainer};
use crate::{Inner, Service, ServiceError};

/// Containers that are ended concurrently.
const ENDS_MAX: usize = 16;

/// Rounds of retrying containers that could not be ended.
const ROUNDS_MAX: usize = 3;

impl Service {
    /// Stops the service: refuses new work, removes warm containers, waits up to `grace` for execs
    /// to end, then ends and removes transient containers. Persistent containers and their execs
    /// continue. What an engine does not remove in time is left to the next server.
    pub async fn stop(&self, grace: Duration) {
        let inner = self.inner.without_operation();
        inner.set_ready(false);
        let time = grace.saturating_add(inner.environment.settings().stop_timeout);
        if tokio::time::timeout(time, inner.end_all_but_kept(grace))
            .await
            .is_err()
        {
            tracing::error!("not everything could be removed in time; the next server does it");
            inner.leave_transient().await;
        }
        inner.save_uses().await;
        let environment = &inner.environment;
        environment
            .record_own(EventName::SystemShutdown, |_| {})
            .await;
        inner.sync_last().await;
        inner.environment.tasks.end();
        inner.environment.tasks.ended().await;
    }
}

impl Inner {
    async fn end_all_but_kept(&self, grace: Duration) {
        let drained = tokio::time::timeout(grace, self.drained());
        let (drained, ()) = tokio::join!(drained, self.pool.drain());
        if drained.is_err() {
            tracing::warn!("execs were still running when the grace was over");
        }
        self.end_transient().await;
    }

    /// Stores for the remaining transient containers that they must be ended.
    async fn leave_transient(&self) {
        for container in self.transient() {
            let store = &self.environment.store;
            let noted = store.set_container_phase(container.id().clone(), Phase::Stopping, None);
            if let Err(error) = noted.await {
                self.environment.metrics.store_failed();
                tracing::error!(container.id = %container.id(), %error, "an end is not noted");
            }
        }
    }

    /// The containers that end with this server.
    fn transient(&self) -> Vec<Arc<LiveContainer>> {
        let mut containers = self.registry.all();
        containers
            .retain(|container| !container.row.is_persistent && !container.is_on_other_engine());
        containers
    }

    /// Waits until no container has running or queued execs.
    async fn drained(&self) {
        for container in self.registry.all() {
            container.execs().idle().await;
        }
    }

    /// Removes transient containers. Those that cannot be removed are left to the next server:
    /// their rows say that they were ending.
    async fn end_transient(&self) {
        let mut mode = EndMode::Graceful;
        for _ in 0..ROUNDS_MAX {
            let left = self.end_all(self.transient(), mode).await;
            if left == 0 {
                return;
            }
            tracing::error!(left, "transient containers could not be removed");
            mode = EndMode::Forced;
        }
    }

    /// Ends containers, a bounded number at a time; returns how many could not be ended.
    pub(crate) async fn end_all(&self, containers: Vec<Arc<LiveContainer>>, mode: EndMode) -> u64 {
        let turns = Arc::new(Semaphore::new(ENDS_MAX));
        let mut ends = JoinSet::new();
        for container in containers {
            let turns = Arc::clone(&turns);
            ends.spawn(async move {
                let _turn = turns.acquire().await;
                container.end(mode).await
            });
        }
        let is_left = |ended: &Result<(), ServiceError>| {
            !matches!(ended, Ok(()) | Err(ServiceError::NotFound { .. }))
        };
        ends.join_all()
            .await
            .iter()
            .filter(|ended| is_left(ended))
            .count() as u64
    }

    /// Stores when containers were last used.
    pub(crate) async fn save_uses(&self) {
        let containers = self.registry.all();
        let unnoted = |container: &Arc<LiveContainer>| {
            Some((container.id().clone(), container.unsaved_use()?))
        };
        let uses: Vec<_> = containers.iter().filter_map(unnoted).collect();
        if uses.is_empty() {
            return;
        }
        match self.environment.store.touch_containers(uses.clone()).await {
            Ok(()) => {
                for (id, used_unix_ms) in uses {
                    if let Some(container) = self.registry.get(&id) {
                        container.mark_use_saved(used_unix_ms);
                    }
                }
            }
            Err(error) => {
                self.environment.metrics.store_failed();
                tracing::error!(%error, "uses of containers are not noted");
            }
        }
    }
}
