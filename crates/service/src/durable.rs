//! Bringing new persistent containers to the disk, so that a power cut does not cost them.
//!
//! Nobody waits for it: whoever asked for a container is answered when it is made. All that
//! are made within a moment go together, and one that has ended by then needs nothing. A
//! server that dies before leaves it to the kernel.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::ContainerId;
use tokio::sync::{Mutex, Notify};

use crate::container::LiveContainer;
use crate::{Inner, ServiceError};

/// From a new container to the disk. Those that are made meanwhile go with it.
const GATHER: Duration = Duration::from_secs(1);

/// From a disk that failed to the next attempt.
const AGAIN: Duration = Duration::from_secs(30);

/// How long a stop waits for the disk.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether something is to be brought to the disk, and who does so.
#[derive(Default)]
pub(crate) struct Durable {
    wanted: Notify,
    /// Held by who does it: one at a time.
    doing: Mutex<()>,
}

impl Inner {
    /// Starts what brings containers to the disk.
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

    /// A container is new, and known to the engine and to the store. Whoever asked for it is
    /// answered after this, so that a server that stops then knows of it.
    pub(crate) fn sync_soon(&self, container: &LiveContainer) {
        if container.row.is_persistent {
            container.set_on_disk(false);
            self.durable.wanted.notify_one();
        }
    }

    /// Brings what is left to the disk before this server stops.
    pub(crate) async fn sync_last(&self) {
        let synced = tokio::time::timeout(STOP_TIMEOUT, self.sync_new()).await;
        if synced.is_err() {
            tracing::warn!("the disk is slow; whether new containers are on it is not known");
        }
    }

    /// Brings new containers to the disk; false if that failed.
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

    /// What the engine has first: a row without it says at least what was lost.
    async fn sync(&self, ids: &[ContainerId]) -> Result<(), ServiceError> {
        self.environment.engine.sync(ids).await?;
        Ok(self.environment.store.sync().await?)
    }
}
