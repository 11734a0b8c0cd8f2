//! Keeping each stock full.
//!
//! One task per stock makes what is missing, several at once while that goes well, one at a
//! time with longer and longer pauses while it does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::ContainerId;
use hotcell_engine::Progress;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::watch::CHECK_TIMEOUT;
use super::{Kept, Pool, Warm};
use crate::ServiceError;
use crate::backoff::Backoff;
use crate::cell::{NotMade, fetch, make};
use crate::connection::Connection;
use crate::error::chain;

/// Containers of one stock that are made at once.
const MAKINGS_MAX: usize = 4;

/// From a container that could not be made to the next attempt.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// What is being made of one stock.
type Makings = JoinSet<Result<(), NotMade>>;

/// How the making goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// Nothing was made yet: the first may have to fetch the image for the others.
    Unknown,
    Well,
    Badly,
}

impl Pool {
    /// Starts to fill every stock, and to keep it of the current image.
    pub(crate) fn start(self: &Arc<Self>) {
        for stock in 0..self.stocks.len() {
            let work = Arc::clone(self).keep_full(stock);
            let work = self.makers.track_future(work);
            self.environment.tasks.spawn(work);
            let look = Arc::clone(self).keep_current(stock);
            self.environment.tasks.spawn(look);
        }
    }

    async fn keep_full(self: Arc<Self>, stock: usize) {
        let mut makings = JoinSet::new();
        let fill = self.fill(stock, &mut makings);
        self.closing.run_until_cancelled(fill).await;
        // An engine undoes what nobody waits for, but only as long as this process lives.
        while makings.join_next().await.is_some() {}
    }

    /// Makes what is missing, for ever.
    async fn fill(self: &Arc<Self>, stock: usize, makings: &mut Makings) {
        let kept = &self.stocks[stock];
        let mut pause = Backoff::between(PAUSE_FIRST, PAUSE_LONGEST);
        let mut going = Going::Unknown;
        let mut freed = self.environment.budget.freed();
        loop {
            freed.mark_unchanged();
            if kept.is_proven.swap(false, Ordering::Relaxed) {
                pause.reset();
            }
            if kept.is_frail.swap(false, Ordering::Relaxed) {
                kept.pause(&mut pause).await;
            }
            while makings.len() < going.makings_max()
                && let Some(id) = self.begin(stock)
            {
                let making = Arc::clone(self).make(stock, id);
                makings.spawn(self.makers.track_future(making));
            }
            tokio::select! {
                Some(made) = makings.join_next() => {
                    going = kept.note(going, made);
                    if going == Going::Badly {
                        kept.pause(&mut pause).await;
                    }
                }
                () = kept.changed.notified() => {}
                // Where it was too little, it may be enough now.
                _ = freed.changed() => {}
            }
        }
    }

    /// The name of a container that is to be made, if one is missing and there is room.
    fn begin(&self, stock: usize) -> Option<ContainerId> {
        let environment = &self.environment;
        let id = ContainerId::from_parts(environment.clock.unix_ms(), environment.random.bytes());
        let wanted = self.stocks[stock].wanted;
        let mut places = self.shelf();
        if !places.begin(stock, wanted, &id) {
            return None;
        }
        if !self.hold(stock, &id) {
            places.remove(&id);
            return None;
        }
        Some(id)
    }

    /// Makes a container and puts it with those that are ready. On `Err` it is being removed.
    async fn make(self: Arc<Self>, stock: usize, id: ContainerId) -> Result<(), NotMade> {
        let given_up = self.shelf().given_up(&id);
        let mut made = self.make_noted(stock, &id, &given_up).await;
        if given_up.is_cancelled() {
            made = Err(NotMade::GivenUp);
        }
        let is_put = made.as_ref().is_ok_and(|warm| self.put(warm));
        if !is_put {
            self.refuse(&id, stock);
        }
        made.map(drop)
    }

    async fn make_noted(
        &self,
        stock: usize,
        id: &ContainerId,
        given_up: &CancellationToken,
    ) -> Result<Arc<Warm>, NotMade> {
        let environment = &self.environment;
        let spec = &self.stocks[stock].spec;
        let created_unix_ms = environment.clock.unix_ms();
        let engine = Arc::clone(&environment.engine);
        let store = &environment.store;
        let noted = store.insert_warm(id.clone(), created_unix_ms, environment.engine_id.clone());
        noted.await?;
        // The one step that may take minutes. What follows is left to come to its end, so that
        // nobody removes what is still being made.
        let fetched = given_up.run_until_cancelled(fetch(environment, spec)).await;
        fetched.ok_or(NotMade::GivenUp)??;
        let connection = Arc::new(Connection::new(engine, id.clone()));
        let container = make(environment, id, spec, &Progress::default(), &connection).await?;
        self.warm_up(&connection).await?;
        Ok(Warm::new(stock, connection, container, created_unix_ms))
    }

    /// What is done in a container before it counts as ready: its agent has answered.
    /// Whatever else shall be there before anybody comes is started here.
    pub(super) async fn warm_up(&self, connection: &Connection) -> Result<(), ServiceError> {
        if self.is_well(connection, CHECK_TIMEOUT).await {
            return Ok(());
        }
        Err(ServiceError::Unavailable {
            reason: "the container does not answer".to_owned(),
            source: None,
        })
    }
}

impl Kept {
    /// Waits, unless somebody shows that it works again.
    async fn pause(&self, pause: &mut Backoff) {
        tokio::select! {
            () = pause.wait() => {}
            () = self.works.notified() => {}
        }
    }

    /// Notes how a making went, and says so when that is another way than before.
    fn note(&self, before: Going, made: Result<Result<(), NotMade>, JoinError>) -> Going {
        let image = &self.spec.value().image;
        let failure = match made {
            // It tells nothing of whether the next can be made.
            Ok(Err(NotMade::GivenUp)) => return before,
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(error) => Some(error.to_string()),
        };
        match (before, failure) {
            (Going::Badly, None) => {
                tracing::info!(%image, "warm containers can be made again");
                Going::Well
            }
            (Going::Well | Going::Unknown, None) => Going::Well,
            (Going::Badly, Some(_)) => Going::Badly,
            (Going::Well | Going::Unknown, Some(error)) => {
                tracing::warn!(%image, error, "warm containers cannot be made; it is tried again");
                Going::Badly
            }
        }
    }
}

impl Going {
    fn makings_max(self) -> usize {
        match self {
            Self::Well => MAKINGS_MAX,
            Self::Unknown | Self::Badly => 1,
        }
    }
}
