//! Periodic work.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::Inner;

/// How often the time of last use of containers is stored.
const SAVE_USES_INTERVAL: Duration = Duration::from_secs(5);

/// How often the memory usage of all containers is summed up.
const MEMORY_INTERVAL: Duration = Duration::from_secs(15);

impl Inner {
    /// Starts the timers. A run ends before the next one begins.
    pub(crate) fn start_timers(self: &Arc<Self>) {
        let settings = self.environment.settings();
        let (gc, reconcile) = (settings.gc_interval, settings.reconcile_interval);
        self.every(SAVE_USES_INTERVAL, |inner| async move {
            inner.save_uses().await;
        });
        self.every(MEMORY_INTERVAL, |inner| async move {
            inner.measure_memory().await;
        });
        self.every(gc, |inner| async move {
            inner.collect_garbage_on_time().await;
        });
        self.every(reconcile, |inner| async move {
            inner.reconcile_on_time().await;
        });
    }

    pub(crate) fn every<W, F>(self: &Arc<Self>, period: Duration, work: W)
    where
        W: Fn(Arc<Self>) -> F + Send + 'static,
        F: Future<Output = ()> + Send,
    {
        let inner = Arc::clone(self);
        self.environment.tasks.spawn(async move {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                work(Arc::clone(&inner)).await;
            }
        });
    }

    async fn measure_memory(&self) {
        if self.registry.is_empty() {
            return self.environment.metrics.memory_used(0);
        }
        match self.environment.engine.list().await {
            Ok(containers) => {
                let owned = containers.iter().filter(|one| !self.pool.holds(&one.id));
                let used = owned.filter_map(|one| one.memory_bytes).sum();
                self.environment.metrics.memory_used(used);
            }
            Err(error) => tracing::warn!(%error, "the engine does not tell its memory"),
        }
    }
}
