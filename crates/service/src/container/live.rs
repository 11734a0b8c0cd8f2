//! One container that has not ended, as this server knows it.
//!
//! ```text
//!            kill, expiry, gc, reconcile, stop
//!                        │ requests
//!                        ▼
//! phase ◀── watch ── its own task ──▶ engine, store
//!                        ▲
//!             death, distrust
//! ```
//!
//! The task in `supervisor` alone changes the phase; everybody else asks it and waits. A persistent
//! container that ends by itself is started again: only a request removes its files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use hotcell_domain::{ContainerId, EngineId, Phase};
use hotcell_engine::{Container, Enforced};
use hotcell_store::ContainerRow;
use tokio::sync::{mpsc, oneshot, watch};

use crate::ServiceError;
use crate::connection::Connection;
use crate::environment::Environment;
use crate::exec::ExecTable;

/// Requests that wait for a container's task. More than these wait for a place.
const REQUESTS_MAX: usize = 64;

/// One container that has not ended.
pub(crate) struct LiveContainer {
    /// As it was asked for. Its phase and its last use are as they were then.
    pub(crate) row: ContainerRow,
    agent: RwLock<AgentState>,
    phase: watch::Sender<Phase>,
    requests: mpsc::Sender<EndRequest>,
    last_used_unix_ms: AtomicU64,
    /// The last use that the store knows of.
    saved_used_unix_ms: AtomicU64,
    /// Whether it survives a power cut, as far as it is meant to.
    is_on_disk: AtomicBool,
    enforced: OnceLock<Enforced>,
    image_digest: OnceLock<String>,
    /// Why it could not be made.
    pub(super) failure: OnceLock<ServiceError>,
    /// This server's engine, if another one holds the container.
    server_engine: Option<EngineId>,
}

/// What belongs to one run of the agent. A restarted container gets a new one.
struct AgentState {
    connection: Arc<Connection>,
    execs: ExecTable,
}

/// Asks a container's supervisor to end it; answered when the container is gone.
pub(crate) struct EndRequest {
    pub(super) mode: EndMode,
    pub(super) answer: oneshot::Sender<Result<(), ServiceError>>,
}

/// How a container shall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndMode {
    /// TERM, grace, KILL.
    Graceful,
    /// At once.
    Forced,
    /// The engine does not have it any more.
    LostByEngine,
}

impl LiveContainer {
    /// A container that is about to be made, or was found. Its task is not started yet: that
    /// takes the requests.
    pub(crate) fn new(
        environment: &Arc<Environment>,
        row: ContainerRow,
    ) -> (Arc<Self>, mpsc::Receiver<EndRequest>) {
        let engine = Arc::clone(&environment.engine);
        let connection = Connection::new(engine, row.id.clone(), environment.metrics.agent.clone());
        Self::with_connection(environment, row, Arc::new(connection))
    }

    /// The same, with a connection that leads to its agent.
    pub(crate) fn with_connection(
        environment: &Arc<Environment>,
        row: ContainerRow,
        connection: Arc<Connection>,
    ) -> (Arc<Self>, mpsc::Receiver<EndRequest>) {
        let (requests, asked) = mpsc::channel(REQUESTS_MAX);
        let here = &environment.engine_id;
        let container = Self {
            server_engine: (!row.engine.may_be(here)).then(|| here.clone()),
            agent: RwLock::new(AgentState::new(environment, &row, connection)),
            phase: watch::Sender::new(row.phase),
            requests,
            last_used_unix_ms: AtomicU64::new(row.last_used_unix_ms),
            saved_used_unix_ms: AtomicU64::new(row.last_used_unix_ms),
            is_on_disk: AtomicBool::new(true),
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

    /// Leads to its agent.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&agent.connection)
    }

    /// Its execs.
    pub(crate) fn execs(&self) -> ExecTable {
        let agent = self.agent.read().unwrap_or_else(PoisonError::into_inner);
        agent.execs.clone()
    }

    /// Its agent will be another one, which knows of no exec. Whoever has the connection or
    /// the execs that were has something that has ended.
    pub(super) fn renew(&self, environment: &Arc<Environment>) {
        let engine = Arc::clone(&environment.engine);
        let connection = Connection::new(
            engine,
            self.row.id.clone(),
            environment.metrics.agent.clone(),
        );
        let fresh = AgentState::new(environment, &self.row, Arc::new(connection));
        *self.agent.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// Where it is in its life.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves it on, if that is a legal move. For its own task alone.
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

    /// What stands behind its limits, once it is known.
    pub(crate) fn enforced(&self) -> Option<Enforced> {
        self.enforced.get().copied()
    }

    /// The digest of its image, once it is known and if it has one.
    pub(crate) fn image_digest(&self) -> Option<&str> {
        self.image_digest.get().map(String::as_str)
    }

    /// Notes what the engine said when it had made it.
    pub(crate) fn record_created(&self, made: Container) {
        let _ = self.enforced.set(made.enforced);
        if let Some(digest) = made.image_digest {
            let _ = self.image_digest.set(digest);
        }
    }

    /// Waits until it has been made, or could not be. It may have ended since.
    pub(crate) async fn until_created(&self) -> Result<(), ServiceError> {
        let mut phase = self.phase.subscribe();
        // The sender is ours, so it is not gone.
        let _ = phase.wait_for(|phase| *phase != Phase::Creating).await;
        match self.failure.get() {
            Some(failure) => Err(failure.again()),
            None => Ok(()),
        }
    }

    /// It has no row and will have none: whoever waits for it is told why, or if there is no
    /// reason, to ask again.
    pub(crate) fn discard(&self, failure: Option<ServiceError>) {
        if let Some(failure) = failure {
            let _ = self.failure.set(failure);
        }
        self.phase.send_replace(Phase::Failed);
    }

    /// Ends it, and returns when nothing of it is left. Whoever else asks meanwhile waits
    /// for the same end.
    pub(crate) async fn end(&self, mode: EndMode) -> Result<(), ServiceError> {
        let (answer, answered) = oneshot::channel();
        let request = EndRequest { mode, answer };
        if self.requests.send(request).await.is_err() {
            return Err(self.gone());
        }
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Waits until its task has ended, and it is in no list any more.
    pub(crate) async fn until_removed(&self) {
        self.requests.closed().await;
    }

    /// Its task has ended: because it is no more, or because this server stops.
    fn gone(&self) -> ServiceError {
        if self.phase().is_final() {
            return ServiceError::no_container(self.id());
        }
        ServiceError::stopping()
    }

    /// Whether another engine holds it than the one that this server runs on.
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
        // Where an engine is, is the operator's to know.
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

    /// Whether nothing of it has to be brought to the disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.is_on_disk.load(Ordering::Relaxed)
    }

    pub(crate) fn set_on_disk(&self, is_on_disk: bool) {
        self.is_on_disk.store(is_on_disk, Ordering::Relaxed);
    }

    /// Notes that it is used now.
    pub(crate) fn touch(&self, now_unix_ms: u64) {
        self.last_used_unix_ms
            .fetch_max(now_unix_ms, Ordering::Relaxed);
    }

    pub(crate) fn last_used_unix_ms(&self) -> u64 {
        self.last_used_unix_ms.load(Ordering::Relaxed)
    }

    /// The last use, if the store does not know of it.
    pub(crate) fn unsaved_use(&self) -> Option<u64> {
        let used = self.last_used_unix_ms();
        (used > self.saved_used_unix_ms.load(Ordering::Relaxed)).then_some(used)
    }

    /// The store knows of this use.
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
    ) -> Self {
        Self {
            execs: ExecTable::new(environment, &connection, row),
            connection,
        }
    }
}
