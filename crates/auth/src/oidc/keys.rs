//! The cached keys of the issuer.
//!
//! ```text
//! fresh (10 min) ──▶ old: used, refreshed in the background ──▶ too old (24 h): all refused
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

/// Younger keys are not fetched again, unless a token names an unknown key.
const FRESH: Duration = Duration::from_mins(10);

/// Older keys are not used: the issuer may have withdrawn them.
const STALE_MAX: Duration = Duration::from_hours(24);

/// The shortest interval between two fetches.
const FETCH_INTERVAL: Duration = Duration::from_secs(30);

/// Requests that may wait for keys; further ones are refused.
const WAITING_MAX: usize = 32;

/// The keys of one issuer.
pub(super) struct Keys {
    fetcher: Fetcher,
    settings: OidcSettings,
    clock: Arc<dyn Clock>,
    known: RwLock<Option<Known>>,
    /// When the last fetch began. Held during a fetch.
    begun: Mutex<Option<Duration>>,
    waiting: Arc<Semaphore>,
}

#[derive(Clone)]
struct Known {
    keys: Arc<Vec<Key>>,
    fetched: Duration,
    /// Incremented when the keys change.
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

    /// The generation of the keys: tokens verified with another one must be verified again. `None`
    /// if there are no usable keys.
    pub(super) fn generation(&self) -> Option<u64> {
        self.usable().map(|known| known.generation)
    }

    /// Whether the keys should be refreshed in the background.
    pub(super) fn is_old(&self) -> bool {
        self.known()
            .is_none_or(|known| self.age(known.fetched) > FRESH)
    }

    /// The key that a token names, and the generation of the keys.
    pub(super) async fn find(self: &Arc<Self>, token: &Jws<'_>) -> Result<(Key, u64), Failure> {
        if let Some(key) = self.find_known(token) {
            return Ok(key);
        }
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            return Err(Failure::UnknownKey);
        };
        let keys = Arc::clone(self);
        // In a task of its own: a client that disconnects drops its request, and must not cancel
        // the fetch; otherwise, by doing so again and again, it could prevent us from ever getting
        // a key. So the permit is held by the task, too.
        let fetch = tokio::spawn(async move {
            // The cause is logged; the request is refused in any case.
            let _ = keys.fetch().await;
            drop(place);
        });
        // Fails only after a panic, which the panic hook has reported.
        let _ = fetch.await;
        match (self.find_known(token), self.usable()) {
            (Some(key), _) => Ok(key),
            (None, Some(_)) => Err(Failure::UnknownKey),
            (None, None) => Err(Failure::Unavailable),
        }
    }

    /// Fetches the keys, unless that was tried recently. Concurrent callers wait for the same
    /// fetch.
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
