//! Starts the service: takes over a state directory.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use hotcell_engine::{Enforced, Engine};
use hotcell_ledger::{Arguments, EventName};
use hotcell_store::Store;
use tokio::sync::Semaphore;

use crate::budget::Budget;
use crate::code::Languages;
use crate::disk_watch::WALKS_MAX;
use crate::durable::Durable;
use crate::egress::{Egress, EgressSettings};
use crate::environment::{Clock, Environment, Random, SharedSettings};
use crate::exec::LiveExecs;
use crate::metrics::Metrics;
use crate::operation::Guarded;
use crate::pool::Pool;
use crate::port::PORT_STREAMS_MAX;
use crate::registry::Registry;
use crate::space::Space;
use crate::spawn_rate::{SpawnRates, WINDOW_MS};
use crate::status::limit_views;
use crate::tasks::Tasks;
use crate::{EndOnDrop, Inner, Service, ServiceError, Settings, trace};

/// Concurrent reconnects at the start.
const RECONNECTS_MAX: usize = 16;

impl Service {
    /// Takes over a state directory: reconciles with the engine, continues every exec, reconnects
    /// to every container in the background, begins to fill the warm pool, and starts the timers.
    pub async fn start(
        engine: Arc<dyn Engine>,
        store: Store,
        settings: Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ServiceError> {
        let enforced = engine.capabilities().await?.enforced;
        warn_of(enforced);
        let (service, inner) = Self::new(engine, store, settings, clock, random, enforced)?;
        inner.record_start().await;
        inner.take_over().await?;
        inner.pool.start();
        inner.start_timers();
        inner.start_disk_watch();
        inner.start_syncing();
        inner.set_ready(true);
        Ok(service)
    }

    /// A service only for the containers of this process: takes over nothing, and does nothing by
    /// itself except watch their disk usage. The caller ends the containers that it creates.
    pub fn temporary(
        engine: Arc<dyn Engine>,
        store: Store,
        settings: Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ServiceError> {
        // What enforces the limits is known once there is a container; finding out before is not
        // worth the time.
        let enforced = Enforced::NOTHING;
        let (service, inner) = Self::new(engine, store, settings, clock, random, enforced)?;
        inner.start_disk_watch();
        inner.set_ready(true);
        Ok(service)
    }

    fn new(
        engine: Arc<dyn Engine>,
        store: Store,
        settings: Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        enforced: Enforced,
    ) -> Result<(Self, Arc<Inner>), ServiceError> {
        let metrics = Metrics::default();
        store.observe_transactions(metrics.store_observer());
        store.observe_queries(|step, asked| trace::step("store", step, asked.elapsed(), true));
        if let Some(ledger) = &settings.ledger {
            ledger.observe(metrics.audit_observer());
        }
        let directory = settings.egress_directory.clone();
        let egress = Egress::new(EgressSettings::of(&settings), directory)?;
        let environment = Arc::new(Environment {
            egress,
            budget: Budget::new(settings.totals),
            port_streams: Arc::new(Semaphore::new(PORT_STREAMS_MAX)),
            engine_id: engine.identity(),
            engine: metrics.engine.meter(engine),
            store,
            settings: SharedSettings::new(settings),
            clock,
            random,
            metrics,
            tasks: Tasks::default(),
            execs: LiveExecs::default(),
            space: Space::default(),
            spawn_rates: SpawnRates::default(),
        });
        let end = Arc::new(EndOnDrop(Arc::clone(&environment)));
        let pool = Arc::new(Pool::new(&environment)?);
        let inner = Arc::new(Inner::new(environment, enforced, pool));
        let service = Self {
            inner: Guarded::new(Arc::clone(&inner)),
            _end: end,
        };
        Ok((service, inner))
    }
}

impl Inner {
    fn new(environment: Arc<Environment>, enforced: Enforced, pool: Arc<Pool>) -> Self {
        Self {
            started_unix_ms: environment.clock.unix_ms(),
            environment,
            registry: Registry::default(),
            pool,
            languages: Languages::default(),
            durable: Durable::default(),
            reconnecting: Semaphore::new(RECONNECTS_MAX),
            disk_walks: Semaphore::new(WALKS_MAX),
            reconciling: tokio::sync::Mutex::default(),
            reconciled: Mutex::default(),
            enforced,
            is_ready: AtomicBool::new(false),
        }
    }

    /// Records in the ledger that the server has started, and what it found.
    async fn record_start(&self) {
        let environment = &self.environment;
        let settings = environment.settings();
        let Some(ledger) = &settings.ledger else {
            return;
        };
        let resumed = ledger.resumed();
        let note = |arguments: &mut Arguments| {
            arguments.text("version", env!("CARGO_PKG_VERSION"));
            arguments.text("engine", &environment.engine_id.name);
            arguments.number("torn_bytes", resumed.torn_bytes);
            arguments.flag("ledger_is_broken", resumed.is_broken);
        };
        environment.record_own(EventName::SystemStart, note).await;
    }

    /// Finds the containers of earlier servers and gives each its execs. The pool takes over its
    /// containers first, so that reconcile does not treat them as callers'.
    async fn take_over(self: &Arc<Self>) -> Result<(), ServiceError> {
        let warm = self.environment.store.warm().await?;
        self.pool.adopt(warm).await?;
        self.restore_spawn_rates().await?;
        let mut execs = self.active_execs().await?;
        let found = self.reconcile_with(&mut execs).await?;
        self.record_reconciled(&found).await;
        for exec in execs.into_values().flatten() {
            self.environment.lose_exec(exec).await?;
        }
        Ok(())
    }

    /// Counts recent spawns again, so that a restart does not reset the quota.
    async fn restore_spawn_rates(&self) -> Result<(), ServiceError> {
        let environment = &self.environment;
        let now_unix_ms = environment.clock.unix_ms();
        let since_unix_ms = now_unix_ms.saturating_sub(WINDOW_MS);
        for (principal, spawns) in environment.store.spawns_since(since_unix_ms).await? {
            let rates = &environment.spawn_rates;
            rates.restore(principal, spawns, now_unix_ms);
        }
        Ok(())
    }
}

/// Warns about limits that nothing enforces.
fn warn_of(enforced: Enforced) {
    for view in limit_views(enforced) {
        match view.by {
            None => tracing::warn!(
                limit = view.limit,
                "this host cannot enforce a limit of containers; `hotcell doctor` tells why"
            ),
            Some("rlimit") => tracing::warn!(
                limit = view.limit,
                "this host limits each process of a container and not the whole; `hotcell doctor` tells why"
            ),
            Some("watched") => tracing::info!(
                limit = view.limit,
                "this host looks every second at what containers use of a limit, and ends what goes over"
            ),
            Some(_) => {}
        }
    }
}
