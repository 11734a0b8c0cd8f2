//! Watching what is ready, so that nobody is handed a dead container.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::ContainerId;
use hotcell_engine::{Engine, EngineError};

use super::{Pool, WarmContainer};
use crate::connection::Connection;

/// How long a container may take to show that it is well when nobody waits for it. A busy host
/// must not throw away what it will need.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// A container that is lost before it is so old tells that the next may be lost as well.
const EARLY_LOSS_AGE_MS_MAX: u64 = 10_000;

/// Attempts to ask an agent: a connection may have been lost without anybody noticing.
const ASKS_MAX: usize = 2;

impl Pool {
    /// Makes a container one that can be handed out, and watches it; false if it is to leave.
    pub(super) fn put(self: &Arc<Self>, warm: &Arc<WarmContainer>) -> bool {
        let watch = Arc::clone(self).watch(Arc::clone(warm));
        let tasks = &self.environment.tasks;
        // The watch begins when the slots is free again, and finds it there.
        let start = || tasks.spawn(watch).abort_handle();
        self.slots().put(Arc::clone(warm), start)
    }

    /// Waits until something is wrong with it, and removes it. Ended from outside when
    /// somebody claims it.
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

    /// Asks again and again, and returns when it does not answer.
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

    /// Whether a container answers, and is as it was made: nothing was ever run in it.
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

    /// Tells that a container that was ready is not any more.
    pub(super) fn note_loss(&self, warm: &WarmContainer, reason: &str) {
        tracing::warn!(container.id = %warm.id, reason, "a warm container is lost");
        let now_unix_ms = self.environment.clock.unix_ms();
        if now_unix_ms.saturating_sub(warm.created_unix_ms) < EARLY_LOSS_AGE_MS_MAX {
            let set = &self.sets[warm.set];
            set.lost_early.store(true, Ordering::Relaxed);
        }
    }
}

/// Waits until the container's agent has ended. An engine that cannot tell leaves that to
/// the checks.
async fn ended(engine: &dyn Engine, id: &ContainerId) {
    match engine.exited(id).await {
        Ok(()) | Err(EngineError::NotFound { .. }) => {}
        Err(_) => std::future::pending().await,
    }
}
