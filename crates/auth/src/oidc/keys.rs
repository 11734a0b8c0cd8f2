//! The keys of the issuer, as they are known now.
//!
//! ```text
//! fresh (10 minutes) ──▶ old: used, and fetched again behind the requests ──▶ too old (24 hours): nobody gets in
//! unknown key id ──▶ fetched at once, at most every 30 seconds, by one request; a few wait for it
//! ```

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};

use super::fetch::{FetchError, Fetcher};
use super::jws::Jws;
use super::key::Key;
use super::settings::OidcSettings;
use crate::{Clock, Failure};

/// Younger keys are not asked for again, unless a token names one that is not there.
const FRESH: Duration = Duration::from_mins(10);

/// Older keys are not used: the issuer may have withdrawn them.
const STALE_MAX: Duration = Duration::from_hours(24);

/// Two attempts to fetch are this far apart.
const FETCH_INTERVAL: Duration = Duration::from_secs(30);

/// Requests that wait for keys; more are refused.
const WAITING_MAX: usize = 32;

/// The keys of one issuer.
pub(super) struct Keys {
    fetcher: Fetcher,
    settings: OidcSettings,
    clock: Arc<dyn Clock>,
    known: RwLock<Option<Known>>,
    /// When a fetch was last begun. Whoever fetches holds it.
    begun: Mutex<Option<Duration>>,
    waiting: Arc<Semaphore>,
}

#[derive(Clone)]
struct Known {
    keys: Arc<Vec<Key>>,
    fetched: Duration,
    /// Counts the times that the keys have changed.
    generation: u64,
}

impl Keys {
    pub(super) fn new(fetcher: Fetcher, settings: OidcSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            fetcher,
            settings,
            clock,
            known: RwLock::new(None),
            begun: Mutex::new(None),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }

    /// Which keys are known: what was checked with others must be checked again. None if
    /// nothing may be believed now.
    pub(super) fn generation(&self) -> Option<u64> {
        self.usable().map(|known| known.generation)
    }

    /// Whether it is time to fetch behind the requests.
    pub(super) fn is_old(&self) -> bool {
        self.known()
            .is_none_or(|known| self.age(known.fetched) > FRESH)
    }

    /// The key that a token says it is signed with, and of which generation it is.
    pub(super) async fn find(self: &Arc<Self>, token: &Jws<'_>) -> Result<(Key, u64), Failure> {
        if let Some(key) = self.find_known(token) {
            return Ok(key);
        }
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            return Err(Failure::UnknownKey);
        };
        let keys = Arc::clone(self);
        // A client that hangs up ends its request, and must not end the fetch with it: whoever did
        // that again and again would keep us from ever learning a key. So the place is kept, too.
        let fetch = tokio::spawn(async move {
            // The reason is in the log; the request is refused in any case.
            let _ = keys.fetch().await;
            drop(place);
        });
        // Only a panic is lost here, and the panic hook has told it.
        let _ = fetch.await;
        match (self.find_known(token), self.usable()) {
            (Some(key), _) => Ok(key),
            (None, Some(_)) => Err(Failure::UnknownKey),
            (None, None) => Err(Failure::Unavailable),
        }
    }

    /// Fetches the keys, unless somebody has just tried. Whoever comes meanwhile waits for it.
    pub(super) async fn fetch(&self) -> Result<(), FetchError> {
        let mut begun = self.begun.lock().await;
        if begun.is_some_and(|begun| self.age(begun) < FETCH_INTERVAL) {
            return Ok(());
        }
        *begun = Some(self.clock.steady());
        let fetched = self.fetcher.keys(&self.settings).await;
        if let Err(error) = &fetched {
            let error: &dyn std::error::Error = error;
            tracing::warn!(target: "hotcell::auth", error, "could not fetch the issuer's keys");
        }
        self.learn(fetched?);
        Ok(())
    }

    fn learn(&self, keys: Vec<Key>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let generation = match &*known {
            Some(before) if *before.keys == keys => before.generation,
            Some(before) => before.generation + 1,
            None => 0,
        };
        *known = Some(Known {
            keys: Arc::new(keys),
            fetched: self.clock.steady(),
            generation,
        });
    }

    fn find_known(&self, token: &Jws<'_>) -> Option<(Key, u64)> {
        let known = self.usable()?;
        let key = token.key(&known.keys)?.clone();
        Some((key, known.generation))
    }

    fn usable(&self) -> Option<Known> {
        self.known()
            .filter(|known| self.age(known.fetched) < STALE_MAX)
    }

    fn known(&self) -> Option<Known> {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn age(&self, since: Duration) -> Duration {
        self.clock.steady().saturating_sub(since)
    }
}
