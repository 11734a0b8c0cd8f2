//! Where each container of the pool is. Pure bookkeeping under one lock, so that every move is
//! made once: whoever moved a container from one stage to the next is the only one who did.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotcell_domain::ContainerId;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::Warm;
use super::current::Current;

/// Every container of the pool, oldest first.
#[derive(Default)]
pub(super) struct Shelf {
    places: BTreeMap<ContainerId, Place>,
    is_closed: bool,
}

struct Place {
    stock: usize,
    stage: Stage,
}

enum Stage {
    /// It is being made, unless it is given up.
    Coming(CancellationToken),
    /// It can be handed out, and is watched meanwhile.
    Ready(Arc<Warm>, AbortHandle),
    /// Somebody is about to get it.
    Claimed,
    /// It is being removed.
    Leaving,
}

impl Shelf {
    /// Takes a place for a container that is on its way; false if its stock has as many as
    /// are wanted. What cannot be removed takes places too, so that an engine that removes
    /// nothing is not filled without end.
    pub(super) fn begin(&mut self, stock: usize, wanted: usize, id: &ContainerId) -> bool {
        let (mut present, mut leaving) = (0, 0);
        for place in self.places.values().filter(|place| place.stock == stock) {
            match place.stage {
                Stage::Coming(_) | Stage::Ready(..) | Stage::Claimed => present += 1,
                Stage::Leaving => leaving += 1,
            }
        }
        let has_room = !self.is_closed && present < wanted && present + leaving < 2 * wanted;
        if has_room {
            self.insert(stock, id, Stage::Coming(CancellationToken::new()));
        }
        has_room
    }

    /// Takes a place for a container that nobody wants: it is on its way out.
    pub(super) fn begin_to_leave(&mut self, stock: usize, id: &ContainerId) {
        self.insert(stock, id, Stage::Leaving);
    }

    fn insert(&mut self, stock: usize, id: &ContainerId, stage: Stage) {
        self.places.insert(id.clone(), Place { stock, stage });
    }

    /// One that was on its way, or claimed and not used, is ready; false if it is to leave.
    pub(super) fn put(&mut self, warm: Arc<Warm>, watch: impl FnOnce() -> AbortHandle) -> bool {
        let is_closed = self.is_closed;
        match self.places.get_mut(&warm.id) {
            Some(place) if !is_closed && place.stage.is_on_its_way() => {
                place.stage = Stage::Ready(warm, watch());
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes the oldest one that is ready. It is not watched any more.
    pub(super) fn take(&mut self, stock: usize) -> Option<Arc<Warm>> {
        let places = self.places.values_mut();
        for place in places.filter(|place| place.stock == stock) {
            if let Stage::Ready(warm, watch) = &place.stage {
                watch.abort();
                let warm = Arc::clone(warm);
                place.stage = Stage::Claimed;
                return Some(warm);
            }
        }
        None
    }

    /// Those that are ready and of another image than the current one are to leave. They are
    /// not watched any more.
    pub(super) fn lose_unfit(&mut self, stock: usize, current: &Current) -> Vec<Arc<Warm>> {
        let mut lost = Vec::new();
        let places = self.places.values_mut();
        for place in places.filter(|place| place.stock == stock) {
            if let Stage::Ready(warm, watch) = &place.stage
                && !current.fits(warm)
            {
                watch.abort();
                lost.push(Arc::clone(warm));
                place.stage = Stage::Leaving;
            }
        }
        lost
    }

    /// One that was watched is to leave; false if somebody else has moved it meanwhile.
    pub(super) fn lose(&mut self, id: &ContainerId) -> bool {
        self.move_out(id, |stage| matches!(stage, Stage::Ready(..)))
    }

    /// One that was on its way, or claimed, is to leave; false if it is already.
    pub(super) fn refuse(&mut self, id: &ContainerId) -> bool {
        self.move_out(id, Stage::is_on_its_way)
    }

    fn move_out(&mut self, id: &ContainerId, is_movable: impl Fn(&Stage) -> bool) -> bool {
        match self.places.get_mut(id) {
            Some(place) if is_movable(&place.stage) => {
                place.stage = Stage::Leaving;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether a container is being removed, or will be as soon as it is made.
    pub(super) fn is_giving(&self) -> bool {
        let mut stages = self.places.values().map(|place| &place.stage);
        stages.any(|stage| match stage {
            Stage::Leaving => true,
            Stage::Coming(given_up) => given_up.is_cancelled(),
            Stage::Ready(..) | Stage::Claimed => false,
        })
    }

    /// Gives up the newest container that nobody is about to get, and tells its stock and
    /// whether it was ready. One that was not is removed by whoever makes it.
    pub(super) fn give_up(&mut self) -> Option<(ContainerId, usize, bool)> {
        for (id, place) in self.places.iter_mut().rev() {
            let is_ready = match &place.stage {
                Stage::Coming(given_up) => {
                    given_up.cancel();
                    false
                }
                Stage::Ready(_, watch) => {
                    watch.abort();
                    true
                }
                Stage::Claimed | Stage::Leaving => continue,
            };
            if is_ready {
                place.stage = Stage::Leaving;
            }
            return Some((id.clone(), place.stock, is_ready));
        }
        None
    }

    /// Tells when a container that is being made is given up. One that is not being made
    /// any more is.
    pub(super) fn given_up(&self, id: &ContainerId) -> CancellationToken {
        match self.places.get(id).map(|place| &place.stage) {
            Some(Stage::Coming(given_up)) => given_up.clone(),
            Some(Stage::Ready(..) | Stage::Claimed | Stage::Leaving) | None => {
                let given_up = CancellationToken::new();
                given_up.cancel();
                given_up
            }
        }
    }

    /// It is somebody's, or there is nothing left of it.
    pub(super) fn remove(&mut self, id: &ContainerId) {
        self.places.remove(id);
    }

    /// Takes and gives nothing from now on. Answers all that is to be removed, which is
    /// everything but what somebody is about to get: what is on its way, and what is there.
    pub(super) fn close(&mut self) -> (Vec<ContainerId>, Vec<ContainerId>) {
        self.is_closed = true;
        let (mut coming, mut there) = (Vec::new(), Vec::new());
        for (id, place) in &mut self.places {
            match &place.stage {
                Stage::Claimed => continue,
                Stage::Coming(_) => coming.push(id.clone()),
                Stage::Leaving => there.push(id.clone()),
                Stage::Ready(_, watch) => {
                    watch.abort();
                    there.push(id.clone());
                }
            }
            place.stage = Stage::Leaving;
        }
        (coming, there)
    }

    /// Whether a container is the pool's.
    pub(super) fn holds(&self, id: &ContainerId) -> bool {
        self.places.contains_key(id)
    }

    /// How many of a stock are ready.
    pub(super) fn ready(&self, stock: usize) -> usize {
        let is_ready =
            |place: &&Place| place.stock == stock && matches!(place.stage, Stage::Ready(..));
        self.places.values().filter(is_ready).count()
    }
}

impl Stage {
    fn is_on_its_way(&self) -> bool {
        matches!(self, Self::Coming(_) | Self::Claimed)
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
        let mut shelf = Shelf::default();
        let taken: Vec<bool> = (0..4)
            .map(|number| shelf.begin(0, 2, &id(number)))
            .collect();
        assert_eq!(taken, [true, true, false, false]);
        assert!(
            shelf.begin(1, 1, &id(9)),
            "another stock has its own places"
        );
        assert!(shelf.refuse(&id(0)));
        assert!(!shelf.refuse(&id(0)), "it is moved once");
        assert!(shelf.begin(0, 2, &id(5)), "what leaves is replaced at once");
        assert!(shelf.holds(&id(0)) && shelf.holds(&id(5)));
    }

    #[test]
    fn an_engine_that_removes_nothing_is_not_filled_without_end() {
        let mut shelf = Shelf::default();
        let mut begun = 0;
        for number in 0..100 {
            if shelf.begin(0, 3, &id(number)) {
                begun += 1;
                assert!(shelf.refuse(&id(number)));
            }
        }
        assert_eq!(begun, 6);
        shelf.remove(&id(0));
        assert!(shelf.begin(0, 3, &id(200)));
    }

    #[test]
    fn what_is_closed_takes_nothing_and_names_all_that_must_go() {
        let mut shelf = Shelf::default();
        assert!(shelf.begin(0, 3, &id(1)));
        shelf.begin_to_leave(7, &id(2));
        assert_eq!(shelf.close(), (vec![id(1)], vec![id(2)]));
        assert!(!shelf.begin(0, 3, &id(3)));
        assert!(shelf.take(0).is_none());
        assert_eq!(shelf.ready(0), 0);
    }
}
