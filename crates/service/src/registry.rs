//! The containers in memory: by id, and per principal by alias, by key and by session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hotcell_domain::{
    Alias, ContainerId, ContainerRef, Name, OverQuota, Principal, Quota, QuotaKind,
};
use hotcell_store::ContainerRow;

use crate::container::LiveContainer;

/// All containers that have not ended. A container is here before it has a row, and until its row
/// says that it has ended.
#[derive(Default)]
pub(crate) struct Registry {
    maps: RwLock<Maps>,
}

#[derive(Default)]
struct Maps {
    by_id: BTreeMap<ContainerId, Arc<LiveContainer>>,
    by_principal: HashMap<Principal, Owned>,
}

/// The containers of one principal, so that lookups do not search those of others.
#[derive(Default)]
struct Owned {
    ids: BTreeSet<ContainerId>,
    /// Their disk limits together.
    disk_bytes: u64,
    by_alias: HashMap<Alias, ContainerId>,
    /// The latest container of each idempotency key.
    by_key: HashMap<Name, ContainerId>,
    /// The container of each session, also while it is created or ended.
    by_session: HashMap<Name, ContainerId>,
}

/// The totals of one principal's containers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ContainerUse {
    pub(crate) containers: usize,
    /// Their disk limits together.
    pub(crate) disk_bytes: u64,
}

/// Why a container was not added.
pub(crate) enum AddError {
    /// The key belongs to this container.
    SameKey(Arc<LiveContainer>),
    /// The session is this container.
    SameSession(Arc<LiveContainer>),
    /// The principal's quota is used up.
    OverQuota(OverQuota),
}

impl Registry {
    /// Adds a container, unless its principal has requested one with the same key since
    /// `keys_since_unix_ms`, has a session of the same name, or has used up its quota. There is
    /// never more than one container under creation for the same key or session.
    pub(crate) fn add(
        &self,
        container: &Arc<LiveContainer>,
        keys_since_unix_ms: u64,
        quota: &Quota,
    ) -> Result<(), AddError> {
        let mut maps = self.write();
        if let Some(before) = maps.keyed(&container.row, keys_since_unix_ms) {
            return Err(AddError::SameKey(before));
        }
        if let Some(session) = &container.row.session
            && let Some(before) = maps.session(&container.row.principal, session)
        {
            return Err(AddError::SameSession(before));
        }
        let owned = maps.by_principal.get(&container.row.principal);
        let used = owned.map(Owned::sums).unwrap_or_default();
        let disk_bytes = container.row.spec.limits.disk.get();
        Quota::check_count(QuotaKind::Containers, used.containers, quota.containers)
            .and_then(|()| quota.check_disk(used.disk_bytes, disk_bytes))
            .map_err(AddError::OverQuota)?;
        maps.insert(container);
        Ok(())
    }

    /// Whether [`Registry::add`] would find a container with the same key.
    pub(crate) fn has_key_of(&self, row: &ContainerRow, keys_since_unix_ms: u64) -> bool {
        self.read().keyed(row, keys_since_unix_ms).is_some()
    }

    /// The container of a session, also while it is created or ended.
    pub(crate) fn session(&self, principal: &Principal, name: &Name) -> Option<Arc<LiveContainer>> {
        self.read().session(principal, name)
    }

    /// Adds a container that is already running.
    pub(crate) fn add_found(&self, container: &Arc<LiveContainer>) {
        let mut maps = self.write();
        maps.insert(container);
        maps.name(container);
    }

    /// Assigns a container's alias to it.
    pub(crate) fn name(&self, container: &LiveContainer) {
        self.write().name(container);
    }

    /// Removes a container, and its alias, key and session unless another container has them now.
    pub(crate) fn remove(&self, container: &LiveContainer) {
        self.write().remove(container);
    }

    pub(crate) fn find(
        &self,
        principal: &Principal,
        target: &ContainerRef,
    ) -> Option<Arc<LiveContainer>> {
        let maps = self.read();
        let id = match target {
            ContainerRef::Id(id) => id,
            ContainerRef::Alias(alias) => maps.by_principal.get(principal)?.by_alias.get(alias)?,
        };
        let container = maps.by_id.get(id);
        container
            .filter(|container| container.row.principal == *principal)
            .cloned()
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Option<Arc<LiveContainer>> {
        self.read().by_id.get(id).cloned()
    }

    /// The containers of one principal, oldest first.
    pub(crate) fn owned_by(&self, principal: &Principal) -> Vec<Arc<LiveContainer>> {
        let maps = self.read();
        let owned = maps.by_principal.get(principal);
        let ids = owned.into_iter().flat_map(|owned| &owned.ids);
        ids.filter_map(|id| maps.by_id.get(id)).cloned().collect()
    }

    /// The totals of each principal.
    pub(crate) fn counts(&self) -> HashMap<Principal, ContainerUse> {
        let maps = self.read();
        let owned = maps.by_principal.iter();
        owned
            .map(|(principal, owned)| (principal.clone(), owned.sums()))
            .collect()
    }

    /// All containers, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<LiveContainer>> {
        self.read().by_id.values().cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read().by_id.is_empty()
    }

    fn read(&self) -> RwLockReadGuard<'_, Maps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.maps.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owned {
    fn sums(&self) -> ContainerUse {
        ContainerUse {
            containers: self.ids.len(),
            disk_bytes: self.disk_bytes,
        }
    }
}

impl Maps {
    fn insert(&mut self, container: &Arc<LiveContainer>) {
        let (row, id) = (&container.row, container.id());
        self.by_id.insert(id.clone(), Arc::clone(container));
        let owned = self.by_principal.entry(row.principal.clone()).or_default();
        if owned.ids.insert(id.clone()) {
            owned.disk_bytes += row.spec.limits.disk.get();
        }
        if let Some(key) = &row.key {
            owned.by_key.insert(key.clone(), id.clone());
        }
        if let Some(session) = &row.session {
            owned.by_session.insert(session.clone(), id.clone());
        }
        self.assert_counts();
    }

    fn name(&mut self, container: &LiveContainer) {
        if let Some(alias) = &container.row.alias {
            let principal = container.row.principal.clone();
            let owned = self.by_principal.entry(principal).or_default();
            owned.by_alias.insert(alias.clone(), container.id().clone());
        }
    }

    fn remove(&mut self, container: &LiveContainer) {
        let (row, id) = (&container.row, container.id());
        self.by_id.remove(id);
        let Some(owned) = self.by_principal.get_mut(&row.principal) else {
            return;
        };
        if owned.ids.remove(id) {
            owned.disk_bytes -= row.spec.limits.disk.get();
        }
        owned.by_alias.retain(|_, named| named != id);
        owned.by_key.retain(|_, keyed| keyed != id);
        owned.by_session.retain(|_, session| session != id);
        if owned.ids.is_empty() {
            self.by_principal.remove(&row.principal);
        }
        self.assert_counts();
    }

    fn session(&self, principal: &Principal, name: &Name) -> Option<Arc<LiveContainer>> {
        let owned = self.by_principal.get(principal)?;
        self.by_id.get(owned.by_session.get(name)?).cloned()
    }

    /// The container of a key, if the key was used recently enough.
    fn keyed(&self, wanted: &ContainerRow, since_unix_ms: u64) -> Option<Arc<LiveContainer>> {
        let owned = self.by_principal.get(&wanted.principal)?;
        let id = owned.by_key.get(wanted.key.as_ref()?)?;
        let container = self.by_id.get(id)?;
        (container.row.created_unix_ms >= since_unix_ms).then(|| Arc::clone(container))
    }

    /// Every container is counted for exactly one principal, on which quotas rely.
    fn assert_counts(&self) {
        debug_assert_eq!(
            self.by_id.len(),
            self.by_principal
                .values()
                .map(|owned| owned.ids.len())
                .sum::<usize>()
        );
    }
}
