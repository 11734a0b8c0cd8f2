//! Gives up warm containers when a caller's container needs their budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::{ContainerId, Limits, PolicyError};

use super::Pool;

/// How long a caller waits for warm containers to be removed.
const ROOM_TIMEOUT: Duration = Duration::from_mins(1);

impl Pool {
    /// Reserves the budget for a caller's container. If that is only possible without the pool,
    /// warm containers are removed one by one until there is enough.
    pub(crate) async fn make_room(
        self: &Arc<Self>,
        id: &ContainerId,
        limits: &Limits,
    ) -> Result<(), PolicyError> {
        let budget = &self.environment.budget;
        let Err(refusal) = budget.hold(id, limits) else {
            return Ok(());
        };
        if !budget.fits_without_pool(limits) {
            return Err(refusal);
        }
        let _need = budget.need();
        let waited = tokio::time::timeout(ROOM_TIMEOUT, self.until_room(id, limits));
        waited.await.unwrap_or(Err(refusal))
    }

    async fn until_room(
        self: &Arc<Self>,
        id: &ContainerId,
        limits: &Limits,
    ) -> Result<(), PolicyError> {
        let budget = &self.environment.budget;
        let mut freed = budget.freed();
        loop {
            freed.mark_unchanged();
            let Err(refusal) = budget.hold(id, limits) else {
                return Ok(());
            };
            if !self.give_up_one() {
                return Err(refusal);
            }
            // The budget holds the sender, so the channel is open.
            let _ = freed.changed().await;
        }
    }

    /// Begins to remove one container, unless a removal is pending; false if there is none left.
    fn give_up_one(self: &Arc<Self>) -> bool {
        let mut slots = self.slots();
        if slots.is_making_room() {
            return true;
        }
        let given = slots.give_up();
        drop(slots);
        let Some((id, set, is_ready)) = given else {
            return false;
        };
        tracing::info!(container.id = %id, "a warm container is given up for one that is asked for");
        // A container that is being created is removed by the task that creates it.
        if is_ready {
            self.remove_in_background(id, set);
        }
        true
    }

    /// Reserves the budget for a container of a set; false if there is no room, which is logged
    /// once.
    pub(super) fn hold(&self, set: usize, id: &ContainerId) -> bool {
        let warm_set = &self.sets[set];
        let spec = warm_set.spec.value();
        let has_room = self.environment.budget.hold_for_pool(id, &spec.limits);
        let was_out_of_room = warm_set.is_out_of_room.swap(!has_room, Ordering::Relaxed);
        if !has_room && !was_out_of_room {
            tracing::warn!(
                image = %spec.image,
                "no room for another warm container: all containers together hold what they may \
                 (--memory-total, --pids-total); it is made when there is"
            );
        }
        has_room
    }
}
