//! The containers in memory: by id, and by alias within a principal.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hotcell_domain::{Alias, ContainerId, ContainerRef, Principal};
use hotcell_store::ContainerRow;

use crate::cell::Cell;

/// Every container that has not ended. A container is here before it has a row and until
/// its row is ended.
#[derive(Default)]
pub(crate) struct Registry {
    cells: RwLock<Cells>,
}

#[derive(Default)]
struct Cells {
    by_id: BTreeMap<ContainerId, Arc<Cell>>,
    by_alias: HashMap<(Principal, Alias), ContainerId>,
}

/// Why a container was not added.
pub(crate) enum NotAdded {
    /// This one was asked for under the same key.
    Before(Arc<Cell>),
    /// The principal has as many containers as it may have.
    Full,
}

impl Registry {
    /// Adds a container, unless its principal has asked for one under the same key at
    /// `keys_since_unix_ms` or later, or has `containers_max`. Of one key there is never more
    /// than one container in the making.
    pub(crate) fn add(
        &self,
        cell: &Arc<Cell>,
        keys_since_unix_ms: u64,
        containers_max: usize,
    ) -> Result<(), NotAdded> {
        let mut cells = self.write();
        if let Some(before) = cells.keyed(&cell.row, keys_since_unix_ms) {
            return Err(NotAdded::Before(before));
        }
        let is_owned = |other: &&Arc<Cell>| other.row.principal == cell.row.principal;
        if cells.by_id.values().filter(is_owned).count() >= containers_max {
            return Err(NotAdded::Full);
        }
        cells.by_id.insert(cell.id().clone(), Arc::clone(cell));
        Ok(())
    }

    /// Whether [`Registry::add`] would find one that was asked for under the same key.
    pub(crate) fn has_key_of(&self, row: &ContainerRow, keys_since_unix_ms: u64) -> bool {
        self.read().keyed(row, keys_since_unix_ms).is_some()
    }

    /// Adds a container that runs already.
    pub(crate) fn add_found(&self, cell: &Arc<Cell>) {
        let mut cells = self.write();
        cells.by_id.insert(cell.id().clone(), Arc::clone(cell));
        if let Some(alias) = alias_of(cell) {
            cells.by_alias.insert(alias, cell.id().clone());
        }
    }

    /// Makes its alias lead to a container, which is now the one that has it.
    pub(crate) fn name(&self, cell: &Cell) {
        if let Some(alias) = alias_of(cell) {
            self.write().by_alias.insert(alias, cell.id().clone());
        }
    }

    /// Removes a container, and its alias unless that is another's by now.
    pub(crate) fn remove(&self, cell: &Cell) {
        let mut cells = self.write();
        cells.by_id.remove(cell.id());
        if let Some(alias) = alias_of(cell)
            && cells.by_alias.get(&alias) == Some(cell.id())
        {
            cells.by_alias.remove(&alias);
        }
    }

    /// A container of a principal.
    pub(crate) fn find(&self, principal: &Principal, target: &ContainerRef) -> Option<Arc<Cell>> {
        let cells = self.read();
        let cell = match target {
            ContainerRef::Id(id) => cells.by_id.get(id),
            ContainerRef::Alias(alias) => {
                let id = cells.by_alias.get(&(principal.clone(), alias.clone()))?;
                cells.by_id.get(id)
            }
        };
        cell.filter(|cell| cell.row.principal == *principal)
            .cloned()
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Option<Arc<Cell>> {
        self.read().by_id.get(id).cloned()
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Cell>> {
        self.read().by_id.values().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Cells> {
        self.cells.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Cells> {
        self.cells.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cells {
    fn keyed(&self, wanted: &ContainerRow, since_unix_ms: u64) -> Option<Arc<Cell>> {
        let key = wanted.key.as_ref()?;
        let is_it = |cell: &&Arc<Cell>| {
            let row = &cell.row;
            row.key.as_ref() == Some(key)
                && row.principal == wanted.principal
                && row.created_unix_ms >= since_unix_ms
        };
        self.by_id.values().find(is_it).cloned()
    }
}

fn alias_of(cell: &Cell) -> Option<(Principal, Alias)> {
    let alias = cell.row.alias.clone()?;
    Some((cell.row.principal.clone(), alias))
}
