//! The sum of the limits that all containers reserve, bounded so that they cannot use up the host.
//!
//! A container reserves its limits from before it is created until nothing is left of it, whether
//! it belongs to the pool, to a caller, or is being removed. Reservations are by id, so a warm
//! container that is handed out is not counted twice, and releasing twice is harmless. The sum is
//! maintained, never recomputed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hotcell_domain::{ContainerId, Limits, PolicyError, Share, Totals};
use tokio::sync::watch;

/// The reservations and their limit.
pub(crate) struct Budget {
    holdings: Mutex<Holdings>,
    /// Changes whenever something is released.
    freed: watch::Sender<()>,
}

#[derive(Default)]
struct Holdings {
    /// `None`: no limit.
    totals: Option<Totals>,
    holders: HashMap<ContainerId, Holder>,
    held: Share,
    /// The part that the pool would give up for a caller.
    held_by_pool: Share,
    /// Callers that wait for the pool to give up containers.
    in_need: usize,
}

struct Holder {
    share: Share,
    is_pools: bool,
}

/// A caller needs room: while this exists, the pool reserves nothing.
pub(crate) struct CallerNeed<'a>(&'a Budget);

impl Budget {
    pub(crate) fn new(totals: Option<Totals>) -> Self {
        let holdings = Holdings {
            totals,
            ..Holdings::default()
        };
        Self {
            holdings: Mutex::new(holdings),
            freed: watch::Sender::default(),
        }
    }

    /// Reserves the limits of a caller's container, if there is room.
    pub(crate) fn hold(&self, id: &ContainerId, limits: &Limits) -> Result<(), PolicyError> {
        let mut holdings = self.holdings();
        holdings.admit(limits, holdings.held)?;
        holdings.insert(id, limits, false);
        Ok(())
    }

    /// Reserves the limits of a warm container; false if there is no room, or a caller needs it.
    pub(crate) fn hold_for_pool(&self, id: &ContainerId, limits: &Limits) -> bool {
        let mut holdings = self.holdings();
        let has_room = holdings.in_need == 0 && holdings.admit(limits, holdings.held).is_ok();
        if has_room {
            holdings.insert(id, limits, true);
        }
        has_room
    }

    /// Records the limits of a container that exists already, whether or not there is room.
    pub(crate) fn note(&self, id: &ContainerId, limits: &Limits) {
        self.holdings().insert(id, limits, false);
    }

    /// Records the limits of an existing warm container, which is being removed.
    pub(crate) fn note_of_pool(&self, id: &ContainerId, limits: &Limits) {
        self.holdings().insert(id, limits, true);
    }

    /// A warm container now belongs to a caller; its reservation stays.
    pub(crate) fn hand_over(&self, id: &ContainerId) {
        self.holdings().hand_over(id);
    }

    /// Releases a reservation once nothing is left of the container. Idempotent.
    pub(crate) fn release(&self, id: &ContainerId) {
        let is_freed = self.holdings().remove(id);
        if is_freed {
            self.freed.send_replace(());
        }
    }

    /// Whether there would be room if the pool gave up all its containers.
    pub(crate) fn fits_without_pool(&self, limits: &Limits) -> bool {
        let holdings = self.holdings();
        let others = holdings.held.minus(holdings.held_by_pool);
        holdings.admit(limits, others).is_ok()
    }

    /// Keeps the pool from reserving what becomes free.
    pub(crate) fn need(&self) -> CallerNeed<'_> {
        self.holdings().in_need += 1;
        CallerNeed(self)
    }

    /// Notifies whenever something is released.
    pub(crate) fn freed(&self) -> watch::Receiver<()> {
        self.freed.subscribe()
    }

    /// The current sum of all reservations.
    pub(crate) fn held(&self) -> Share {
        self.holdings().held
    }

    pub(crate) fn totals(&self) -> Option<Totals> {
        self.holdings().totals
    }

    /// Changes the limits. Existing reservations stay, even if they exceed the new limits.
    pub(crate) fn set_totals(&self, totals: Option<Totals>) {
        self.holdings().totals = totals;
        // There may be more room now.
        self.freed.send_replace(());
    }

    fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallerNeed<'_> {
    fn drop(&mut self) {
        self.0.holdings().in_need -= 1;
        // The pool may use what is left over.
        self.0.freed.send_replace(());
    }
}

impl Holdings {
    fn admit(&self, limits: &Limits, held: Share) -> Result<(), PolicyError> {
        match &self.totals {
            Some(totals) => totals.admit(limits, held),
            None => Ok(()),
        }
    }

    fn insert(&mut self, id: &ContainerId, limits: &Limits, is_pools: bool) {
        let share = limits.share();
        self.remove(id);
        self.held = self.held.plus(share);
        if is_pools {
            self.held_by_pool = self.held_by_pool.plus(share);
        }
        self.holders.insert(id.clone(), Holder { share, is_pools });
    }

    fn remove(&mut self, id: &ContainerId) -> bool {
        self.hand_over(id);
        let Some(holder) = self.holders.remove(id) else {
            return false;
        };
        self.held = self.held.minus(holder.share);
        true
    }

    fn hand_over(&mut self, id: &ContainerId) {
        if let Some(holder) = self.holders.get_mut(id).filter(|holder| holder.is_pools) {
            holder.is_pools = false;
            self.held_by_pool = self.held_by_pool.minus(holder.share);
        }
    }
}

#[cfg(test)]
mod tests {
    use hotcell_domain::{Bytes, Pids};

    use super::*;

    fn id(number: u64) -> ContainerId {
        ContainerId::from_parts(number, [0; 10])
    }

    fn limits(memory: &str) -> Limits {
        Limits {
            memory: Bytes::parse(memory).unwrap(),
            pids: Pids::new(10).unwrap(),
            ..Limits::default()
        }
    }

    fn budget(memory: &str) -> Budget {
        Budget::new(Some(Totals {
            memory: Bytes::parse(memory).unwrap(),
            pids: Pids::new(100).unwrap(),
        }))
    }

    #[test]
    fn a_container_holds_once_however_often_it_is_noted_and_released() {
        let budget = budget("1g");
        budget.hold(&id(1), &limits("512m")).unwrap();
        budget.note(&id(1), &limits("512m"));
        assert_eq!(budget.held(), limits("512m").share());
        budget.release(&id(1));
        budget.release(&id(1));
        assert_eq!(budget.held(), Share::default());
    }

    #[test]
    fn totals_that_change_count_for_the_next_container() {
        let budget = budget("1g");
        budget.hold(&id(1), &limits("512m")).unwrap();
        let total = |memory| Totals {
            memory: Bytes::parse(memory).unwrap(),
            pids: Pids::new(100).unwrap(),
        };
        budget.set_totals(Some(total("256m")));
        assert_eq!(budget.held(), limits("512m").share());
        assert!(budget.hold(&id(2), &limits("64m")).is_err());
        budget.set_totals(Some(total("1g")));
        assert!(budget.hold(&id(2), &limits("64m")).is_ok());
    }

    #[test]
    fn a_warm_container_that_is_handed_out_is_not_counted_again() {
        let budget = budget("512m");
        assert!(budget.hold_for_pool(&id(1), &limits("512m")));
        assert!(budget.fits_without_pool(&limits("512m")));
        budget.hand_over(&id(1));
        assert_eq!(budget.held(), limits("512m").share());
        assert!(!budget.fits_without_pool(&limits("512m")));
    }

    #[test]
    fn the_pool_takes_nothing_that_somebody_needs() {
        let budget = budget("1g");
        let need = budget.need();
        assert!(!budget.hold_for_pool(&id(1), &limits("512m")));
        let mut freed = budget.freed();
        drop(need);
        assert!(
            freed.has_changed().unwrap(),
            "the pool is told to look again"
        );
        freed.mark_unchanged();
        assert!(budget.hold_for_pool(&id(1), &limits("512m")));
    }

    #[test]
    fn what_was_found_counts_even_if_it_is_too_much() {
        let budget = budget("512m");
        budget.note(&id(1), &limits("1g"));
        assert_eq!(budget.held(), limits("1g").share());
        assert!(budget.hold(&id(2), &limits("16m")).is_err());
        budget.release(&id(1));
        budget.hold(&id(2), &limits("16m")).unwrap();
    }
}
