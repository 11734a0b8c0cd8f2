//! The containers in memory: by id, and by alias within a principal.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hotcell_domain::{Alias, ContainerId, ContainerRef, Principal};
use hotcell_store::ContainerRow;

use crate::container::LiveContainer;

/// Every container that has not ended. A container is here before it has a row and until
/// its row is ended.
#[derive(Default)]
pub(crate) struct Registry {
    maps: RwLock<Maps>,
}

#[derive(Default)]
struct Maps {
    by_id: BTreeMap<ContainerId, Arc<LiveContainer>>,
    by_alias: HashMap<(Principal, Alias), ContainerId>,
}

/// Why a container was not added.
pub(crate) enum AddError {
    /// This one was asked for under the same key.
    SameKey(Arc<LiveContainer>),
    /// The principal has as many containers as it may have.
    Full,
}

impl Registry {
    /// Adds a container, unless its principal has asked for one under the same key at
    /// `keys_since_unix_ms` or later, or has `containers_max`. Of one key there is never more
    /// than one container in the making.
    pub(crate) fn add(
        &self,
        container: &Arc<LiveContainer>,
        keys_since_unix_ms: u64,
        containers_max: usize,
    ) -> Result<(), AddError> {
        let mut containers = self.write();
        if let Some(before) = containers.keyed(&container.row, keys_since_unix_ms) {
            return Err(AddError::SameKey(before));
        }
        let is_owned = |other: &&Arc<LiveContainer>| other.row.principal == container.row.principal;
        if containers.by_id.values().filter(is_owned).count() >= containers_max {
            return Err(AddError::Full);
        }
        containers
            .by_id
            .insert(container.id().clone(), Arc::clone(container));
        Ok(())
    }

    /// Whether [`Registry::add`] would find one that was asked for under the same key.
    pub(crate) fn has_key_of(&self, row: &ContainerRow, keys_since_unix_ms: u64) -> bool {
        self.read().keyed(row, keys_since_unix_ms).is_some()
    }

    /// Adds a container that runs already.
    pub(crate) fn add_found(&self, container: &Arc<LiveContainer>) {
        let mut containers = self.write();
        containers
            .by_id
            .insert(container.id().clone(), Arc::clone(container));
        if let Some(alias) = alias_of(container) {
            containers.by_alias.insert(alias, container.id().clone());
        }
    }

    /// Makes its alias lead to a container, which is now the one that has it.
    pub(crate) fn name(&self, container: &LiveContainer) {
        if let Some(alias) = alias_of(container) {
            self.write().by_alias.insert(alias, container.id().clone());
        }
    }

    /// Removes a container, and its alias unless that is another's by now.
    pub(crate) fn remove(&self, container: &LiveContainer) {
        let mut containers = self.write();
        containers.by_id.remove(container.id());
        if let Some(alias) = alias_of(container)
            && containers.by_alias.get(&alias) == Some(container.id())
        {
            containers.by_alias.remove(&alias);
        }
    }

    /// A container of a principal.
    pub(crate) fn find(
        &self,
        principal: &Principal,
        target: &ContainerRef,
    ) -> Option<Arc<LiveContainer>> {
        let containers = self.read();
        let container = match target {
            ContainerRef::Id(id) => containers.by_id.get(id),
            ContainerRef::Alias(alias) => {
                let id = containers
                    .by_alias
                    .get(&(principal.clone(), alias.clone()))?;
                containers.by_id.get(id)
            }
        };
        container
            .filter(|container| container.row.principal == *principal)
            .cloned()
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Option<Arc<LiveContainer>> {
        self.read().by_id.get(id).cloned()
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<LiveContainer>> {
        self.read().by_id.values().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Maps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.maps.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Maps {
    fn keyed(&self, wanted: &ContainerRow, since_unix_ms: u64) -> Option<Arc<LiveContainer>> {
        let key = wanted.key.as_ref()?;
        let is_it = |container: &&Arc<LiveContainer>| {
            let row = &container.row;
            row.key.as_ref() == Some(key)
                && row.principal == wanted.principal
                && row.created_unix_ms >= since_unix_ms
        };
        self.by_id.values().find(is_it).cloned()
    }
}

fn alias_of(container: &LiveContainer) -> Option<(Principal, Alias)> {
    let alias = container.row.alias.clone()?;
    Some((container.row.principal.clone(), alias))
}
