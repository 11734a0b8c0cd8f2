//! The slot of each container in the pool. Pure bookkeeping under one lock: every transition
//! succeeds for exactly one task.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotcell_domain::ContainerId;
use hotcell_engine::Abandonment;
use tokio::task::AbortHandle;

use super::WarmContainer;
use super::freshness::CurrentImage;

/// Every container of the pool, oldest first.
#[derive(Default)]
pub(super) struct Slots {
    slots: BTreeMap<ContainerId, Slot>,
    is_closed: bool,
}

struct Slot {
    set: usize,
    state: SlotState,
}

enum SlotState {
    /// Being created, unless it is given up.
    Creating(Abandonment),
    /// Can be handed out; watched meanwhile.
    Ready(Arc<WarmContainer>, AbortHandle),
    /// Reserved for a request.
    Claimed,
    /// Being removed.
    Removing,
}

impl Slots {
    /// Takes a slot for a container that is about to be created; false if its set is full.
    /// Containers that cannot be removed occupy slots, too, so that an engine that fails to remove
    /// is not filled without end.
    pub(super) fn begin(&mut self, set: usize, wanted: usize, id: &ContainerId) -> bool {
        let (mut present, mut removing) = (0, 0);
        for slot in self.slots.values().filter(|slot| slot.set == set) {
            match slot.state {
                SlotState::Creating(_) | SlotState::Ready(..) | SlotState::Claimed => present += 1,
                SlotState::Removing => removing += 1,
            }
        }
        let has_room = !self.is_closed && present < wanted && present + removing < 2 * wanted;
        if has_room {
            debug_assert!(!self.holds(id), "a container has one slot");
            self.insert(set, id, SlotState::Creating(Abandonment::default()));
        }
        has_room
    }

    /// Takes a slot for a container that only has to be removed.
    pub(super) fn begin_removal(&mut self, set: usize, id: &ContainerId) {
        self.insert(set, id, SlotState::Removing);
    }

    fn insert(&mut self, set: usize, id: &ContainerId, state: SlotState) {
        self.slots.insert(id.clone(), Slot { set, state });
    }

    /// Makes a created or unused claimed container ready; false if it must be removed.
    pub(super) fn put(
        &mut self,
        warm: Arc<WarmContainer>,
        watch: impl FnOnce() -> AbortHandle,
    ) -> bool {
        let is_closed = self.is_closed;
        match self.slots.get_mut(&warm.id) {
            Some(slot) if !is_closed && slot.state.is_pending() => {
                slot.state = SlotState::Ready(warm, watch());
                true
            }
            Some(_) | None => false,
        }
    }

    /// Claims the oldest ready container and stops watching it.
    pub(super) fn take(&mut self, set: usize) -> Option<Arc<WarmContainer>> {
        let slots = self.slots.values_mut();
        for slot in slots.filter(|slot| slot.set == set) {
            if let SlotState::Ready(warm, watch) = &slot.state {
                watch.abort();
                let warm = Arc::clone(warm);
                slot.state = SlotState::Claimed;
                return Some(warm);
            }
        }
        None
    }

    /// Marks ready containers of an outdated image for removal and stops watching them.
    pub(super) fn evict_stale(
        &mut self,
        set: usize,
        current: &CurrentImage,
    ) -> Vec<Arc<WarmContainer>> {
        let mut lost = Vec::new();
        let slots = self.slots.values_mut();
        for slot in slots.filter(|slot| slot.set == set) {
            if let SlotState::Ready(warm, watch) = &slot.state
                && !current.is_of(warm)
            {
                watch.abort();
                lost.push(Arc::clone(warm));
                slot.state = SlotState::Removing;
            }
        }
        lost
    }

    /// Marks a ready container for removal; false if it has left that state meanwhile.
    pub(super) fn evict(&mut self, id: &ContainerId) -> bool {
        self.move_out(id, |state| matches!(state, SlotState::Ready(..)))
    }

    /// Marks a container that is being created or is claimed for removal; false if it already is.
    pub(super) fn reject(&mut self, id: &ContainerId) -> bool {
        self.move_out(id, SlotState::is_pending)
    }

    fn move_out(&mut self, id: &ContainerId, is_movable: impl Fn(&SlotState) -> bool) -> bool {
        match self.slots.get_mut(id) {
            Some(slot) if is_movable(&slot.state) => {
                slot.state = SlotState::Removing;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether a container is being removed, or will be as soon as its creation ends.
    pub(super) fn is_making_room(&self) -> bool {
        let mut states = self.slots.values().map(|slot| &slot.state);
        states.any(|state| match state {
            SlotState::Removing => true,
            SlotState::Creating(given_up) => given_up.is_abandoned(),
            SlotState::Ready(..) | SlotState::Claimed => false,
        })
    }

    /// Gives up the newest container that is not claimed; returns its set and whether it was ready.
    /// If it was not, the task that creates it removes it.
    pub(super) fn give_up(&mut self) -> Option<(ContainerId, usize, bool)> {
        for (id, slot) in self.slots.iter_mut().rev() {
            let is_ready = match &slot.state {
                SlotState::Creating(given_up) => {
                    given_up.abandon();
                    false
                }
                SlotState::Ready(_, watch) => {
                    watch.abort();
                    true
                }
                SlotState::Claimed | SlotState::Removing => continue,
            };
            if is_ready {
                slot.state = SlotState::Removing;
            }
            return Some((id.clone(), slot.set, is_ready));
        }
        None
    }

    /// A token that says when a container under creation is given up. It is abandoned from the
    /// start if the container is not under creation any more.
    pub(super) fn given_up(&self, id: &ContainerId) -> Abandonment {
        match self.slots.get(id).map(|slot| &slot.state) {
            Some(SlotState::Creating(given_up)) => given_up.clone(),
            Some(SlotState::Ready(..) | SlotState::Claimed | SlotState::Removing) | None => {
                let given_up = Abandonment::default();
                given_up.abandon();
                given_up
            }
        }
    }

    /// Frees the slot: the container is handed over, or gone.
    pub(super) fn remove(&mut self, id: &ContainerId) {
        self.slots.remove(id);
    }

    /// Stops all transitions but removal. Returns the containers that must be removed, which are
    /// all but the claimed ones: those under creation, and the others.
    pub(super) fn close(&mut self) -> (Vec<ContainerId>, Vec<ContainerId>) {
        self.is_closed = true;
        let (mut creating, mut there) = (Vec::new(), Vec::new());
        for (id, slot) in &mut self.slots {
            match &slot.state {
                SlotState::Claimed => continue,
                SlotState::Creating(_) => creating.push(id.clone()),
                SlotState::Removing => there.push(id.clone()),
                SlotState::Ready(_, watch) => {
                    watch.abort();
                    there.push(id.clone());
                }
            }
            slot.state = SlotState::Removing;
        }
        (creating, there)
    }

    /// Whether the pool has this container.
    pub(super) fn holds(&self, id: &ContainerId) -> bool {
        self.slots.contains_key(id)
    }

    /// Number of ready containers of a set.
    pub(super) fn ready(&self, set: usize) -> usize {
        let is_ready = |slot: &&Slot| slot.set == set && matches!(slot.state, SlotState::Ready(..));
        self.slots.values().filter(is_ready).count()
    }
}

impl SlotState {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Creating(_) | Self::Claimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ContainerId {
        ContainerId::from_parts(number, [0; 10])
    }

    #[test]
    fn a_stock_takes_as_many_as_are_wanted() {
        let mut slots = Slots::default();
        let taken: Vec<bool> = (0..4)
            .map(|number| slots.begin(0, 2, &id(number)))
            .collect();
        assert_eq!(taken, [true, true, false, false]);
        assert!(slots.begin(1, 1, &id(9)), "another set has its own slots");
        assert!(slots.reject(&id(0)));
        assert!(!slots.reject(&id(0)), "it is moved once");
        assert!(slots.begin(0, 2, &id(5)), "what leaves is replaced at once");
        assert!(slots.holds(&id(0)) && slots.holds(&id(5)));
    }

    #[test]
    fn an_engine_that_removes_nothing_is_not_filled_without_end() {
        let mut slots = Slots::default();
        let mut begun = 0;
        for number in 0..100 {
            if slots.begin(0, 3, &id(number)) {
                begun += 1;
                assert!(slots.reject(&id(number)));
            }
        }
        assert_eq!(begun, 6);
        slots.remove(&id(0));
        assert!(slots.begin(0, 3, &id(200)));
    }

    #[test]
    fn what_is_closed_takes_nothing_and_names_all_that_must_go() {
        let mut slots = Slots::default();
        assert!(slots.begin(0, 3, &id(1)));
        slots.begin_removal(7, &id(2));
        assert_eq!(slots.close(), (vec![id(1)], vec![id(2)]));
        assert!(!slots.begin(0, 3, &id(3)));
        assert!(slots.take(0).is_none());
        assert_eq!(slots.ready(0), 0);
    }
}
