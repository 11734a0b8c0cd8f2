//! Watches ready containers, so that nobody gets a dead one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::ContainerId;
use hotcell_engine::{Engine, EngineError};

use super::{Pool, WarmContainer};
use crate::connection::Connection;

/// How long a periodic health check may take. It is generous: a busy host must not throw away
/// containers that it will need.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// If a container is lost before it is this old, the next one may be lost as well.
const EARLY_LOSS_AGE_MS_MAX: u64 = 10_000;

/// Attempts to ask an agent: a connection may have been lost unnoticed.
const ASKS_MAX: usize = 2;

impl Pool {
    /// Makes a container ready and watches it; false if it must be removed.
    pub(super) fn put(self: &Arc<Self>, warm: &Arc<WarmContainer>) -> bool {
        let watch = Arc::clone(self).watch(Arc::clone(warm));
        let tasks = &self.environment.tasks;
        // The watch starts when the lock is released, and finds the container ready.
        let start = || tasks.spawn(watch).abort_handle();
        self.slots().put(Arc::clone(warm), start)
    }

    /// Waits until the container exits or fails its health check, and removes it. Aborted when it
    /// is claimed.
    async fn watch(self: Arc<Self>, warm: Arc<WarmContainer>) {
        let reason = tokio::select! {
            () = ended(&*self.environment.engine, &warm.id) => "its agent ended",
            reason = warm.connection.distrusted() => reason,
            () = self.until_unhealthy(&warm) => "it does not answer",
        };
        if self.slots().evict(&warm.id) {
            self.note_loss(&warm, reason);
            self.remove_in_background(warm.id.clone(), warm.set);
        }
    }

    /// Checks its health periodically; returns when a check fails.
    async fn until_unhealthy(&self, warm: &WarmContainer) {
        let set = &self.sets[warm.set];
        loop {
            tokio::time::sleep(self.environment.settings().warm_check_interval).await;
            if !self.is_healthy(&warm.connection, CHECK_TIMEOUT).await {
                return;
            }
            set.was_useful.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a container answers and is unused: nothing was ever run in it.
    pub(super) async fn is_healthy(&self, connection: &Connection, timeout: Duration) -> bool {
        let asked = async {
            for _ in 0..ASKS_MAX {
                let Ok(connected) = connection.get().await else {
                    return false;
                };
                match connected.agent.list_execs().await {
                    Ok(execs) => return execs.is_empty(),
                    Err(error) => connection.report(&connected, &error),
                }
            }
            false
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or(false)
    }

    /// Logs that a ready container was lost.
    pub(super) fn note_loss(&self, warm: &WarmContainer, reason: &str) {
        tracing::warn!(container.id = %warm.id, reason, "a warm container is lost");
        let now_unix_ms = self.environment.clock.unix_ms();
        if now_unix_ms.saturating_sub(warm.created_unix_ms) < EARLY_LOSS_AGE_MS_MAX {
            let set = &self.sets[warm.set];
            set.lost_early.store(true, Ordering::Relaxed);
        }
    }
}

/// Waits until the container's agent has exited. If the engine cannot tell, the health checks will.
async fn ended(engine: &dyn Engine, id: &ContainerId) {
    match engine.exited(id).await {
        Ok(()) | Err(EngineError::NotFound { .. }) => {}
        Err(_) => std::future::pending().await,
    }
}
