//! Settles differences between the store and the engine.
//!
//! | store | engine | becomes |
//! |---|---|---|
//! | a row | runs | in memory again; ended, if it was being ended |
//! | a row of a persistent container | stopped | restarted, its execs lost |
//! | a row | stopped or incomplete | removed, failed, its execs lost |
//! | a row | nothing | failed, its execs lost; stopped, if it was being ended |
//! | a row of another engine | not asked | halted, until a server runs on that engine |
//! | a row of the same engine at another address | has it | assigned to this engine |
//! | nothing, or an ended row | runs | adopted |
//! | nothing | stopped or incomplete | removed |
//!
//! Containers in memory are settled by their own supervisors, warm ones by the pool. Containers
//! that end with their owner belong to `hotcell run` and are left alone. The engine's list may be
//! out of date when it arrives, so nothing is stored or removed because of the list alone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use hotcell_domain::{
    Caller, ContainerId, ContainerSpec, EngineId, Labels, Lifetime, Phase, Principal,
};
use hotcell_engine::{Container, EngineError};
use hotcell_ledger::{Arguments, EventName};
use hotcell_store::{ContainerRow, ExecRow};

use crate::container::{EndCause, EndMode, LiveContainer, Origin, Supervisor};
use crate::status::WHOLE;
use crate::{Action, Inner, Service, ServiceError};

/// Younger rows may belong to a container that was created and ended while we listed.
const ROW_AGE_MS_MIN: u64 = 60_000;

/// The label of a container that was found without a row.
const ADOPTED_LABEL: &str = "hotcell.adopted";

/// The result of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Containers in the engine, without those of the warm pool.
    pub discovered: u64,
    /// Containers without a row that now have one.
    pub adopted: u64,
    /// Rows whose container is gone, now marked as ended.
    pub cleaned: u64,
    /// Containers that nobody wanted, removed.
    pub orphaned: u64,
    /// Differences that could not be settled.
    pub errors: u64,
}

/// Execs that have not ended, by container.
pub(crate) type Execs = HashMap<ContainerId, Vec<ExecRow>>;

/// How one difference was settled.
enum Settled {
    Same,
    Adopted,
    Cleaned,
    Orphaned,
}

impl Service {
    /// Settles differences between the store and the engine.
    pub async fn reconcile(&self, caller: &Caller) -> Result<Reconciled, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Reconcile, &WHOLE);
        let (found, mut operation) = operation.open(inner.reconcile()).await?;
        operation.note(|arguments| found.note(arguments));
        operation.end().written().await?;
        Ok(found)
    }
}

impl Inner {
    /// Reconciles periodically, and records it if there was a difference.
    pub(crate) async fn reconcile_on_time(self: &Arc<Self>) {
        match self.reconcile().await {
            Ok(found) => self.record_reconciled(&found).await,
            Err(error) => tracing::error!(%error, "the engine was not reconciled"),
        }
    }

    /// Records a reconciliation that no caller requested, if it settled something.
    pub(crate) async fn record_reconciled(&self, found: &Reconciled) {
        if found.adopted + found.cleaned + found.orphaned > 0 {
            let note = |arguments: &mut Arguments| found.note(arguments);
            let name = EventName::SystemReconcile;
            self.environment.record_own(name, note).await;
        }
    }

    /// Reconciles while the service runs.
    async fn reconcile(self: &Arc<Self>) -> Result<Reconciled, ServiceError> {
        let mut execs = self.active_execs().await?;
        self.reconcile_with(&mut execs).await
    }

    pub(crate) async fn active_execs(&self) -> Result<Execs, ServiceError> {
        let mut execs = Execs::new();
        for exec in self.environment.store.active_execs().await? {
            execs.entry(exec.container.clone()).or_default().push(exec);
        }
        Ok(execs)
    }

    /// Reconciles. Takes the execs of every container that is not known to have ended from `execs`.
    pub(crate) async fn reconcile_with(
        self: &Arc<Self>,
        execs: &mut Execs,
    ) -> Result<Reconciled, ServiceError> {
        let _alone = self.reconciling.lock().await;
        // Before the rows are read: a container in memory is settled by its own supervisor.
        let known: HashSet<_> = self
            .registry
            .all()
            .iter()
            .map(|container| container.id().clone())
            .collect();
        let rows = self.environment.store.active_containers().await?;
        let listed = self.environment.engine.list().await?;
        let has_row = |one: &Container| rows.iter().any(|row| row.id == one.id);
        let listed = listed.into_iter().filter(|one| {
            has_row(one) || one.lifetime == Lifetime::UntilDestroyed && !self.pool.holds(&one.id)
        });
        let listed: HashMap<_, _> = listed.map(|one| (one.id.clone(), one)).collect();
        let mut found = Reconciled {
            discovered: listed.len() as u64,
            ..Reconciled::default()
        };
        for id in &known {
            found.count(self.settle_known(id, listed.contains_key(id)).await);
        }
        self.set_aside(&rows, &listed, execs);
        for row in &rows {
            if !known.contains(&row.id) {
                found.count(self.settle_row(row, execs).await);
            }
        }
        for id in listed.keys() {
            if !rows.iter().any(|row| row.id == *id) {
                found.count(self.settle_stranger(id).await);
            }
        }
        self.note_reconciled(&found);
        Ok(found)
    }

    /// Adds containers of other engines to memory as unusable; they and their execs stay as they
    /// are until a server runs on their engine. An engine can be reachable at two addresses:
    /// whatever this engine lists is its own.
    fn set_aside(
        self: &Arc<Self>,
        rows: &[ContainerRow],
        listed: &HashMap<ContainerId, Container>,
        execs: &mut Execs,
    ) {
        let here = &self.environment.engine_id;
        let is_here = |row: &&ContainerRow| {
            let is_shown = row.engine.name == here.name && listed.contains_key(&row.id);
            is_shown || row.engine.may_be(here)
        };
        let mut engines: BTreeMap<&EngineId, usize> = BTreeMap::new();
        for row in rows.iter().filter(|row| !is_here(row)) {
            execs.remove(&row.id);
            if self.registry.get(&row.id).is_some() {
                continue;
            }
            let row_here = ContainerRow {
                phase: Phase::Halted,
                ..row.clone()
            };
            let (container, requests) = LiveContainer::new(&self.environment, row_here);
            self.registry.add_found(&container);
            Supervisor::start(self, &container, requests, Origin::OtherEngine);
            *engines.entry(&row.engine).or_default() += 1;
        }
        for (engine, containers) in engines {
            tracing::warn!(
                %engine,
                containers,
                "containers are held by another engine than this server runs on; they are left alone"
            );
        }
    }

    fn note_reconciled(&self, found: &Reconciled) {
        self.environment.metrics.reconciled(found);
        let now_unix_ms = self.environment.clock.unix_ms();
        let mut last = self
            .reconciled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some((now_unix_ms, found.clone()));
    }

    /// A container in memory: notifies its supervisor if the engine has lost it.
    async fn settle_known(
        &self,
        id: &ContainerId,
        is_listed: bool,
    ) -> Result<Settled, ServiceError> {
        let Some(container) = self.registry.get(id).filter(|_| !is_listed) else {
            return Ok(Settled::Same);
        };
        let is_there = matches!(container.phase(), Phase::Running | Phase::Halted);
        if container.is_on_other_engine() || !is_there || self.inspect(id).await?.is_some() {
            return Ok(Settled::Same);
        }
        match container.end(EndMode::LostByEngine).await {
            Ok(()) => Ok(Settled::Cleaned),
            // It has already ended by another request.
            Err(ServiceError::NotFound { .. }) => Ok(Settled::Same),
            Err(error) => Err(error),
        }
    }

    /// A row whose container is not in memory.
    async fn settle_row(
        self: &Arc<Self>,
        row: &ContainerRow,
        execs: &mut Execs,
    ) -> Result<Settled, ServiceError> {
        let now_unix_ms = self.environment.clock.unix_ms();
        // The absolute difference: after the clock was set back, a row from the future must not
        // count as young for ever.
        let is_young = row.created_unix_ms.abs_diff(now_unix_ms) < ROW_AGE_MS_MIN;
        if self.registry.get(&row.id).is_some() || (self.is_ready() && is_young) {
            return Ok(Settled::Same);
        }
        let theirs = execs.remove(&row.id).unwrap_or_default();
        let container = self.inspect(&row.id).await?;
        let oom_kills = container.as_ref().map_or(0, |one| one.oom_kills);
        let (origin, settled) = match container.map(|one| one.phase) {
            Some(Phase::Running) if row.phase != Phase::Stopping => (Origin::Found, Settled::Same),
            Some(phase) if is_kept(row, phase) => (Origin::Halted, Settled::Same),
            Some(_) => (Origin::Ending(cause_of_end(row)), Settled::Orphaned),
            None => (Origin::Ending(cause_of_end(row)), Settled::Cleaned),
        };
        self.admit_found(row, theirs, origin, oom_kills).await?;
        Ok(settled)
    }

    /// Adds a container and its execs to memory and starts its supervisor. `oom_kills` is the
    /// engine's current count.
    async fn admit_found(
        self: &Arc<Self>,
        row: &ContainerRow,
        execs: Vec<ExecRow>,
        origin: Origin,
        oom_kills: u64,
    ) -> Result<Arc<LiveContainer>, ServiceError> {
        let mut row = row.clone();
        self.note_engine(&mut row).await?;
        let is_wanted = matches!(origin, Origin::Found | Origin::Halted);
        if is_wanted && row.phase != Phase::Running {
            row.phase = Phase::Running;
            let store = &self.environment.store;
            store
                .set_container_phase(row.id.clone(), row.phase, None)
                .await?;
        }
        if matches!(origin, Origin::Halted) {
            row.phase = Phase::Creating;
        }
        let (container, requests) = LiveContainer::new(&self.environment, row);
        container.execs().note_oom_kills(oom_kills);
        let budget = &self.environment.budget;
        budget.note(container.id(), &container.row.spec.limits);
        self.registry.add_found(&container);
        if matches!(origin, Origin::Halted) {
            for exec in execs {
                self.environment.lose_exec(exec).await?;
            }
        } else {
            container.execs().recover(execs);
        }
        Supervisor::start(self, &container, requests, origin);
        Ok(container)
    }

    /// Stores the engine of a container, if it was unknown or has another address now.
    async fn note_engine(&self, row: &mut ContainerRow) -> Result<(), ServiceError> {
        let here = &self.environment.engine_id;
        if row.engine == *here {
            return Ok(());
        }
        row.engine = here.clone();
        let store = &self.environment.store;
        let noted = store.set_container_engine(row.id.clone(), here.clone());
        Ok(noted.await?)
    }

    /// A container without a row.
    async fn settle_stranger(self: &Arc<Self>, id: &ContainerId) -> Result<Settled, ServiceError> {
        // This server adds a container to memory before the engine creates it. The pool is asked
        // first: a container that it hands out is registered before it leaves the pool.
        if self.pool.holds(id) || self.registry.get(id).is_some() {
            return Ok(Settled::Same);
        }
        let Some(container) = self.inspect(id).await? else {
            return Ok(Settled::Same);
        };
        match container.phase {
            Phase::Running => self.adopt(container).await,
            Phase::Creating | Phase::Halted | Phase::Stopping | Phase::Stopped | Phase::Failed => {
                self.environment.destroy(id).await?;
                Ok(Settled::Orphaned)
            }
        }
    }

    /// Gives a container a row: its old one, if it was thought to have ended, without the
    /// variables, which were deleted then; else a new one from what the engine remembers. It is
    /// kept until somebody kills it, because it may contain somebody's work.
    async fn adopt(self: &Arc<Self>, container: Container) -> Result<Settled, ServiceError> {
        let settings = self.environment.settings();
        let now_unix_ms = self.environment.clock.unix_ms();
        let mut labels = Labels::default();
        let labelled = labels.set(ADOPTED_LABEL, "true");
        debug_assert!(labelled.is_ok(), "the label is short and the first");
        let row = ContainerRow {
            id: container.id.clone(),
            principal: Principal::local(),
            alias: None,
            spec: container.spec.unwrap_or_else(|| ContainerSpec {
                limits: settings.default_limits,
                ..ContainerSpec::new(settings.default_image.clone())
            }),
            image_digest: container.image_digest,
            engine: self.environment.engine_id.clone(),
            labels,
            is_persistent: true,
            key: None,
            phase: Phase::Running,
            created_unix_ms: now_unix_ms,
            last_used_unix_ms: now_unix_ms,
            expires_unix_ms: None,
            ended_unix_ms: None,
            is_warm: false,
            session: None,
            egress: None,
        };
        let row = self.environment.store.adopt_container(row).await?;
        let execs = Vec::new();
        let found = self.admit_found(&row, execs, Origin::Found, container.oom_kills);
        let container = found.await?;
        self.sync_soon(&container);
        tracing::info!(container.id = %container.id(), "a container without a row was adopted");
        Ok(Settled::Adopted)
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Option<Container>, ServiceError> {
        match self.environment.engine.inspect(id).await {
            Ok(container) => Ok(Some(container)),
            Err(EngineError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a stopped container is restarted: it was created, nobody requested its end, and it may
/// contain a user's work.
fn is_kept(row: &ContainerRow, phase: Phase) -> bool {
    let was_made = phase.is_final() || row.phase == Phase::Running;
    row.is_persistent && row.phase != Phase::Stopping && was_made
}

/// Why a useless container, or one that was being ended, ends.
fn cause_of_end(row: &ContainerRow) -> EndCause {
    match (row.phase, row.is_persistent) {
        (Phase::Stopping, _) => EndCause::Requested { force: false },
        (Phase::Creating, true) => EndCause::NotCreated,
        // A container that was created would have been kept, so nothing is left of it.
        (_, true) => EndCause::Missing,
        (_, false) => EndCause::Exited,
    }
}

impl Reconciled {
    /// Writes the counts for the audit log.
    fn note(&self, arguments: &mut Arguments) {
        arguments.number("discovered", self.discovered);
        for (name, count) in [
            ("adopted", self.adopted),
            ("cleaned", self.cleaned),
            ("orphaned", self.orphaned),
            ("errors", self.errors),
        ] {
            if count > 0 {
                arguments.number(name, count);
            }
        }
    }

    fn count(&mut self, settled: Result<Settled, ServiceError>) {
        match settled {
            Ok(Settled::Same) => {}
            Ok(Settled::Adopted) => self.adopted += 1,
            Ok(Settled::Cleaned) => self.cleaned += 1,
            Ok(Settled::Orphaned) => self.orphaned += 1,
            Err(error) => {
                tracing::error!(%error, "a container could not be reconciled");
                self.errors += 1;
            }
        }
    }
}
