//! Syncs new persistent containers to disk, so that they survive a power cut.
//!
//! Nobody waits for this: `spawn` answers when the container is created. Containers created within
//! a second are synced together; one that has ended by then needs nothing. If the server dies
//! before, the kernel writes the data.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::ContainerId;
use tokio::sync::{Mutex, Notify};

use crate::container::LiveContainer;
use crate::{Inner, ServiceError};

/// Delay between a new container and the sync, which includes those created meanwhile.
const GATHER: Duration = Duration::from_secs(1);

/// Delay before the next attempt after a failed sync.
const AGAIN: Duration = Duration::from_secs(30);

/// How long a stop waits for the sync.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a sync is due, and the lock that is held during one.
#[derive(Default)]
pub(crate) struct Durable {
    wanted: Notify,
    /// Held during a sync: one at a time.
    doing: Mutex<()>,
}

impl Inner {
    /// Starts the background task.
    pub(crate) fn start_syncing(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.environment.tasks.spawn(async move {
            loop {
                inner.durable.wanted.notified().await;
                tokio::time::sleep(GATHER).await;
                while !inner.sync_new().await {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        });
    }

    /// Schedules the sync of a new container that engine and store know. Called before the caller
    /// is answered, so that a server that stops right after knows about it.
    pub(crate) fn sync_soon(&self, container: &LiveContainer) {
        if container.row.is_persistent {
            container.set_on_disk(false);
            self.durable.wanted.notify_one();
        }
    }

    /// Syncs what is left before the server stops.
    pub(crate) async fn sync_last(&self) {
        let synced = tokio::time::timeout(STOP_TIMEOUT, self.sync_new()).await;
        if synced.is_err() {
            tracing::warn!("the disk is slow; whether new containers are on it is not known");
        }
    }

    /// Syncs new containers; false if that failed.
    async fn sync_new(&self) -> bool {
        let _alone = self.durable.doing.lock().await;
        let mut containers = self.registry.all();
        containers.retain(|container| !container.is_on_disk());
        if containers.is_empty() {
            return true;
        }
        let ids: Vec<_> = containers
            .iter()
            .map(|container| container.id().clone())
            .collect();
        match self.sync(&ids).await {
            Ok(()) => {
                for container in containers {
                    container.set_on_disk(true);
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "a power cut now would cost new containers");
                false
            }
        }
    }

    /// The engine's data first: a row without it at least says what was lost.
    async fn sync(&self, ids: &[ContainerId]) -> Result<(), ServiceError> {
        self.environment.engine.sync(ids).await?;
        Ok(self.environment.store.sync().await?)
    }
}
