//! One lock per container: one task at a time creates or removes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hotcell_domain::ContainerId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Held while a container is created or removed.
pub(super) type Lock = OwnedMutexGuard<()>;

/// The locks that are held or waited for.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: Mutex<HashMap<ContainerId, Weak<AsyncMutex<()>>>>,
}

impl Locks {
    /// Waits until no other task creates or removes the container.
    pub(super) async fn lock(&self, id: &ContainerId) -> Lock {
        let lock = self.of(id);
        lock.lock_owned().await
    }

    fn of(&self, id: &ContainerId) -> Arc<AsyncMutex<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = held.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        held.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        held.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn locks_are_forgotten_when_nobody_has_them() {
        let locks = Locks::default();
        for n in 0..100 {
            drop(locks.lock(&ContainerId::from_parts(n, [0; 10])).await);
        }
        let held = locks.held.lock().expect("not poisoned");
        assert!(held.len() <= 1, "{}", held.len());
    }
}
