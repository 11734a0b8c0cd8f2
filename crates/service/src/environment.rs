//! Dependencies that are passed to the service (clock, randomness, engine, store), and state that
//! all its parts share.

use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use hotcell_domain::{ContainerId, EngineId, ExecEnd, Principal, Quota, TraceContext};
use hotcell_engine::{Engine, EngineError};
use hotcell_ledger::{Arguments, Event, EventName, Who};
use hotcell_store::Store;
use tokio::sync::Semaphore;

use crate::Settings;
use crate::budget::Budget;
use crate::egress::Egress;
use crate::exec::LiveExecs;
use crate::metrics::Metrics;
use crate::operation::{Recording, exec_complete};
use crate::space::Space;
use crate::spawn_rate::SpawnRates;
use crate::status::WHOLE;
use crate::tasks::Tasks;
use crate::trace::OperationSpan;

/// Attempts to remove a container, and the pause after the first; each further pause is longer by
/// that much.
const DESTROYS_MAX: u32 = 5;
const DESTROY_PAUSE: Duration = Duration::from_millis(50);

/// How long all attempts together may take.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(90);

/// The wall clock. Waiting uses tokio's time, which tests can pause.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn unix_ms(&self) -> u64;
}

/// A source of unpredictable random bytes.
pub trait Random: Debug + Send + Sync + 'static {
    /// Ten random bytes.
    fn bytes(&self) -> [u8; 10];
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The kernel's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

/// What all parts of the service share. It holds no containers, so containers may hold it.
pub(crate) struct Environment {
    pub(crate) engine: Arc<dyn Engine>,
    /// The name and address of the engine.
    pub(crate) engine_id: EngineId,
    pub(crate) store: Store,
    pub(crate) settings: SharedSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: Tasks,
    /// The index of live execs.
    pub(crate) execs: LiveExecs,
    pub(crate) space: Space,
    pub(crate) spawn_rates: SpawnRates,
    /// What containers may reach.
    pub(crate) egress: Egress,
    /// The limits that all containers reserve together.
    pub(crate) budget: Budget,
    /// Permits of connections into containers.
    pub(crate) port_streams: Arc<Semaphore>,
}

/// The operator's settings, which may be replaced while the service runs.
pub(crate) struct SharedSettings(RwLock<Arc<Settings>>);

impl SharedSettings {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(RwLock::new(Arc::new(settings)))
    }
}

impl Environment {
    /// The current quota of a principal.
    pub(crate) fn quota_of(&self, principal: &Principal) -> Quota {
        self.settings().quotas.of(principal)
    }

    /// The current settings. An operation that needs several of them takes one snapshot, so that
    /// they are consistent.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.0.read();
        Arc::clone(&settings.unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings for all later operations. The ledger and the trace exporter stay.
    pub(crate) fn replace_settings(&self, settings: Settings) {
        let before = self.settings();
        let settings = Settings {
            ledger: before.ledger.clone(),
            traces: before.traces.clone(),
            ..settings
        };
        self.budget.set_totals(settings.totals);
        let mut shared = self
            .settings
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *shared = Arc::new(settings);
    }

    /// Begins the span of an operation, if traces are exported.
    pub(crate) fn begin_span(&self, trace: TraceContext) -> Option<Arc<OperationSpan>> {
        let settings = self.settings();
        let exporter = settings.traces.as_ref()?;
        let [random @ .., _, _] = self.random.bytes();
        OperationSpan::begin(exporter, trace, random, self.clock.unix_ms())
    }

    /// A new trace, for an operation whose caller has none.
    pub(crate) fn new_trace(&self) -> TraceContext {
        let mut random = [0; 16];
        random[..10].copy_from_slice(&self.random.bytes());
        random[10..].copy_from_slice(&self.random.bytes()[..6]);
        TraceContext::new(random)
    }

    /// Records the end of an exec in the ledger. `ids`: principal, exec and container.
    pub(crate) fn record_exec_end(
        &self,
        ids: (&str, &str, &str),
        end: &ExecEnd,
        unix_ms: u64,
    ) -> Recording {
        let settings = self.settings();
        let ledger = settings.ledger.as_ref();
        ledger.map_or_else(Recording::default, |ledger| {
            exec_complete(ledger, unix_ms, ids, end)
        })
    }

    /// Records an action of the server itself in the ledger.
    pub(crate) async fn record_own(&self, name: EventName, note: impl FnOnce(&mut Arguments)) {
        let settings = self.settings();
        let Some(ledger) = &settings.ledger else {
            return;
        };
        let mut event = Event::new(name, self.clock.unix_ms(), Who::Server, WHOLE);
        note(&mut event.arguments);
        let _ = Recording::of(ledger, &event).written().await;
    }

    /// Removes a container. A missing one counts as removed. If the engine is unavailable, it is
    /// not asked again: each answer may take a long time.
    pub(crate) async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        let destroyed = tokio::time::timeout(DESTROY_TIMEOUT, self.try_to_destroy(id)).await;
        let late = "it took too long";
        destroyed.unwrap_or_else(|_| Err(EngineError::engine("remove the container")(late)))
    }

    async fn try_to_destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        let mut attempt = 1;
        loop {
            match self.engine.destroy(id).await {
                Ok(()) | Err(EngineError::NotFound { .. }) => return Ok(()),
                Err(error @ EngineError::Unavailable { .. }) => return Err(error),
                Err(error) if attempt >= DESTROYS_MAX => return Err(error),
                Err(_) => tokio::time::sleep(DESTROY_PAUSE * attempt).await,
            }
            attempt += 1;
        }
    }
}

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Random for SystemRandom {
    fn bytes(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        getrandom::fill(&mut bytes).expect("Linux always has random numbers");
        bytes
    }
}

/// Converts a duration to milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
