//! A container that has not ended, as this server sees it.
//!
//! ```text
//!            kill, expiry, gc, reconcile, stop
//!                        │ requests
//!                        ▼
//! phase ◀── watch ── supervisor ──▶ engine, store
//!                        ▲
//!             agent died or is distrusted
//! ```
//!
//! Only the supervisor changes the phase; all others ask it and wait. A persistent container that
//! ends by itself is restarted: only a request removes its files.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use hotcell_domain::{ContainerId, EngineId, Installer, Package, Phase};
use hotcell_engine::{Container, Enforced};
use hotcell_store::ContainerRow;
use tokio::sync::{mpsc, oneshot, watch};

use crate::ServiceError;
use crate::connection::Connection;
use crate::disk::DiskState;
use crate::egress::ContainerEgress;
use crate::environment::Environment;
use crate::exec::ExecTable;
use crate::tunnels::TunnelTable;

/// Requests queued for a container's supervisor; further ones wait for room.
const REQUESTS_MAX: usize = 64;

/// Lists of packages that are remembered; then the installer looks again.
const PACKAGE_LISTS_MAX: usize = 64;

/// A container that has not ended.
pub(crate) struct LiveContainer {
    /// The row as of the request: its phase and last use are not updated.
    pub(crate) row: ContainerRow,
    agent: RwLock<AgentState>,
    disk: Arc<DiskState>,
    phase: watch::Sender<Phase>,
    requests: mpsc::Sender<EndRequest>,
    last_used_unix_ms: AtomicU64,
    /// The last use that is stored.
    saved_used_unix_ms: AtomicU64,
    /// Whether it is synced to disk, if it has to be.
    is_on_disk: AtomicBool,
    /// Whether the modules for Python snippets are in its workspace.
    has_python_modules: AtomicBool,
    /// Whether the files that scripts consist of are there too.
    script_files: AtomicUsize,
    /// Lists of packages that were installed in it: languages have packages of the same name.
    packages: Mutex<HashSet<(Installer, Vec<Package>)>>,
    enforced: OnceLock<Enforced>,
    image_digest: OnceLock<String>,
    /// Why it could not be created.
    pub(super) failure: OnceLock<ServiceError>,
    /// This server's engine, if another engine runs the container.
    server_engine: Option<EngineId>,
}

/// The state of one agent process. A restarted container gets a new one.
struct AgentState {
    connection: Arc<Connection>,
    execs: ExecTable,
    tunnels: Arc<TunnelTable>,
    egress: Option<Arc<ContainerEgress>>,
}

/// Asks a container's supervisor to end it; answered when the container is gone.
pub(crate) struct EndRequest {
    pub(super) mode: EndMode,
    pub(super) answer: oneshot::Sender<Result<(), ServiceError>>,
}

/// How a container is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndMode {
    /// SIGTERM, grace period, SIGKILL.
    Graceful,
    /// At once.
    Forced,
    /// The engine no longer has it.
    LostByEngine,
}

impl LiveContainer {
    /// A container that is about to be created, or was found. Its supervisor, which receives the
    /// requests, is not started yet.
    pub(crate) fn new(
        environment: &Arc<Environment>,
        row: ContainerRow,
    ) -> (Arc<Self>, mpsc::Receiver<EndRequest>) {
        let engine = Arc::clone(&environment.engine);
        let connection = Connection::new(engine, row.id.clone(), environment.metrics.agent.clone());
        Self::with_connection(environment, row, Arc::new(connection))
    }

    /// Like [`LiveContainer::new`], with an existing connection to its agent.
    pub(crate) fn with_connection(
        environment: &Arc<Environment>,
        row: ContainerRow,
        connection: Arc<Connection>,
    ) -> (Arc<Self>, mpsc::Receiver<EndRequest>) {
        let (requests, asked) = mpsc::channel(REQUESTS_MAX);
        let here = &environment.engine_id;
        let disk = Arc::default();
        let container = Self {
            server_engine: (!row.engine.may_be(here)).then(|| here.clone()),
            agent: RwLock::new(AgentState::new(environment, &row, connection, &disk)),
            disk,
            phase: watch::Sender::new(row.phase),
            requests,
            last_used_unix_ms: AtomicU64::new(row.last_used_unix_ms),
            saved_used_unix_ms: AtomicU64::new(row.last_used_unix_ms),
            is_on_disk: AtomicBool::new(true),
            has_python_modules: AtomicBool::new(false),
            script_files: AtomicUsize::new(0),
            packages: Mutex::default(),
            enforced: OnceLock::new(),
            image_digest: OnceLock::new(),
            failure: OnceLock::new(),
            row,
        };
        (Arc::new(container), asked)
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.row.id
    }

    /// The connection to its agent.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&agent.connection)
    }

    /// Its disk usage.
    pub(crate) fn disk(&self) -> &Arc<DiskState> {
        &self.disk
    }

    pub(crate) fn execs(&self) -> ExecTable {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        agent.execs.clone()
    }

    /// Connections that its processes open.
    pub(crate) fn tunnels(&self) -> Arc<TunnelTable> {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&agent.tunnels)
    }

    /// What it reaches, if it has a profile.
    pub(crate) fn egress(&self) -> Option<Arc<ContainerEgress>> {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        agent.egress.clone()
    }

    /// Lets its processes reach what its profile allows.
    pub(super) fn start_egress(&self, environment: &Arc<Environment>) {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(egress) = &agent.egress {
            let (connection, tunnels) = (&agent.connection, &agent.tunnels);
            let (connection, tunnels) = (Arc::clone(connection), Arc::clone(tunnels));
            egress.start(environment, &self.row, connection, tunnels);
        }
    }

    /// Ends the connections of its processes.
    pub(super) fn end_egress(&self) {
        if let Some(egress) = self.egress() {
            egress.end();
        }
    }

    /// Prepares for a new agent process, which has no execs. Earlier copies of the connection and
    /// the exec table have ended.
    pub(super) fn renew(&self, environment: &Arc<Environment>) {
        let engine = Arc::clone(&environment.engine);
        let connection = Connection::new(
            engine,
            self.row.id.clone(),
            environment.metrics.agent.clone(),
        );
        let connection = Arc::new(connection);
        let fresh = AgentState::new(environment, &self.row, connection, &self.disk);
        *self.agent.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Changes the phase, if the transition is legal. Only for its supervisor.
    pub(super) fn set_phase(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_legal = phase.can_become(next);
            debug_assert!(
                is_legal || *phase == next,
                "a container that is {phase:?} cannot become {next:?}"
            );
            if is_legal {
                *phase = next;
            }
            is_legal
        });
    }

    /// What enforces its limits, once known.
    pub(crate) fn enforced(&self) -> Option<Enforced> {
        self.enforced.get().copied()
    }

    /// The digest of its image, once known, if it has one.
    pub(crate) fn image_digest(&self) -> Option<&str> {
        self.image_digest.get().map(String::as_str)
    }

    /// Stores what the engine reported after creating it.
    pub(crate) fn record_created(&self, made: Container) {
        let _ = self.enforced.set(made.enforced);
        if let Some(digest) = made.image_digest {
            let _ = self.image_digest.set(digest);
        }
    }

    /// Waits until it has been created, or creation has failed. It may have ended since.
    pub(crate) async fn until_created(&self) -> Result<(), ServiceError> {
        let mut phase = self.phase.subscribe();
        // We own the sender, so it exists.
        let _ = phase.wait_for(|phase| *phase != Phase::Creating).await;
        match self.failure.get() {
            Some(failure) => Err(failure.again()),
            None => Ok(()),
        }
    }

    /// It gets no row: waiting callers get `failure`, or are told to retry if there is none.
    pub(crate) fn discard(&self, failure: Option<ServiceError>) {
        if let Some(failure) = failure {
            let _ = self.failure.set(failure);
        }
        self.phase.send_replace(Phase::Failed);
    }

    /// Ends it; returns when nothing of it is left. Concurrent callers wait for the same end.
    pub(crate) async fn end(&self, mode: EndMode) -> Result<(), ServiceError> {
        let (answer, answered) = oneshot::channel();
        let request = EndRequest { mode, answer };
        if self.requests.send(request).await.is_err() {
            return Err(self.gone());
        }
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Waits until its supervisor has ended and it is in no list.
    pub(crate) async fn until_removed(&self) {
        self.requests.closed().await;
    }

    /// Its supervisor has ended: the container is gone, or this server stops.
    fn gone(&self) -> ServiceError {
        if self.phase().is_final() {
            return ServiceError::no_container(self.id());
        }
        ServiceError::stopping()
    }

    /// Whether an engine other than this server's runs it.
    pub(crate) fn is_on_other_engine(&self) -> bool {
        self.server_engine.is_some()
    }

    /// Why it cannot be used while it is halted.
    pub(crate) fn halted(&self) -> ServiceError {
        let (id, engine) = (self.id(), &self.row.engine);
        let Some(here) = &self.server_engine else {
            return ServiceError::Halted {
                reason: format!("container {id} ended by itself and cannot be started again"),
                hint: "its files are kept until it is killed; ask the operator to read the log and to restart the server",
            };
        };
        // Only the operator may learn the address of an engine.
        let reason = if engine.name == here.name {
            format!(
                "container {id} is held by {here} at another address than this server's",
                here = here.name
            )
        } else {
            let (engine, here) = (&engine.name, &here.name);
            format!("container {id} is held by {engine}, and this server runs on {here}")
        };
        ServiceError::Halted {
            reason,
            hint: "spawn another, or ask the operator to run the server on that engine",
        }
    }

    /// Whether there is nothing left to sync.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.is_on_disk.load(Ordering::Relaxed)
    }

    pub(crate) fn set_on_disk(&self, is_on_disk: bool) {
        self.is_on_disk.store(is_on_disk, Ordering::Relaxed);
    }

    /// Whether the modules for Python snippets are in its workspace, as far as this server knows.
    pub(crate) fn has_python_modules(&self) -> bool {
        self.has_python_modules.load(Ordering::Relaxed)
    }

    pub(crate) fn set_python_modules(&self, are_there: bool) {
        self.has_python_modules.store(are_there, Ordering::Relaxed);
    }

    /// How many of the files that scripts consist of are in its workspace, as far as this server knows.
    pub(crate) fn script_files(&self) -> usize {
        self.script_files.load(Ordering::Relaxed)
    }

    pub(crate) fn set_script_files(&self, count: usize) {
        self.script_files.store(count, Ordering::Relaxed);
    }

    /// Whether these packages were installed in it, as far as this server knows.
    pub(crate) fn has_packages(&self, installer: Installer, packages: &[Package]) -> bool {
        self.packages().contains(&(installer, packages.to_vec()))
    }

    pub(crate) fn set_packages(&self, installer: Installer, packages: &[Package]) {
        let mut known = self.packages();
        if known.len() >= PACKAGE_LISTS_MAX {
            known.clear();
        }
        known.insert((installer, packages.to_vec()));
    }

    /// The next snippet has them looked for again.
    pub(crate) fn forget_packages(&self) {
        self.packages().clear();
    }

    fn packages(&self) -> MutexGuard<'_, HashSet<(Installer, Vec<Package>)>> {
        self.packages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that it is used now.
    pub(crate) fn touch(&self, now_unix_ms: u64) {
        self.last_used_unix_ms
            .fetch_max(now_unix_ms, Ordering::Relaxed);
    }

    pub(crate) fn last_used_unix_ms(&self) -> u64 {
        self.last_used_unix_ms.load(Ordering::Relaxed)
    }

    /// The last use, if it is not stored yet.
    pub(crate) fn unsaved_use(&self) -> Option<u64> {
        let used = self.last_used_unix_ms();
        (used > self.saved_used_unix_ms.load(Ordering::Relaxed)).then_some(used)
    }

    /// Records that this use is stored.
    pub(crate) fn mark_use_saved(&self, used_unix_ms: u64) {
        self.saved_used_unix_ms
            .fetch_max(used_unix_ms, Ordering::Relaxed);
    }
}

impl AgentState {
    fn new(
        environment: &Arc<Environment>,
        row: &ContainerRow,
        connection: Arc<Connection>,
        disk: &Arc<DiskState>,
    ) -> Self {
        let egress = ContainerEgress::of(row);
        Self {
            execs: ExecTable::new(environment, &connection, row, disk, egress.clone()),
            egress,
            tunnels: Arc::default(),
            connection,
        }
    }
}
