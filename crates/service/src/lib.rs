//! The use cases of Hotcell, independent of protocol and transport: containers, execs, files,
//! attachments, the warm pool, reconcile, garbage collection.
//!
//! The store knows what we want, the engine knows what runs, and only `reconcile` settles
//! a difference. One task owns a container's phase; others ask it.

#![forbid(unsafe_code)]

mod backoff;
mod budget;
mod call;
mod code;
mod connection;
mod container;
mod disk;
mod disk_watch;
mod durable;
mod egress;
mod environment;
mod error;
mod exec;
mod file;
mod gc;
mod listing;
mod metrics;
mod operation;
mod pool;
mod port;
mod reconcile;
mod registry;
mod reload;
mod settings;
mod space;
mod spawn_rate;
mod start;
mod status;
mod stop;
mod tasks;
mod timer;
mod trace;
mod tunnels;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hotcell_domain::{Caller, ContainerRef, Phase};
use hotcell_engine::Enforced;
use tokio::sync::Semaphore;

pub use call::{McpCall, McpCallEnd, RecordedCall};
pub use code::{
    Artifacts, CodeFile, CodeOutput, CodeRequest, CodeRun, CutText, SNIPPET_BYTES_MAX, ScriptHost,
    ScriptRequest, ScriptRun, ScriptStream, SessionView, Snippet, default_session,
};
pub use container::{Attached, ContainerName, ContainerView, Spawn};
pub use egress::{
    AssignedEgress, EgressChoice, EgressDenial, EgressMeans, EgressOffer, EgressQuestion,
    EgressReport, EgressView, PrincipalEgress, ProfileView,
};
pub use environment::{Clock, Random, SystemClock, SystemRandom};
pub use error::ServiceError;
pub use exec::{
    CellValues, ExecStdin, ExecStream, ExecSummary, ExecView, Input, Message, Poll, Signal, Start,
};
pub use file::{
    BatchOutcome, FileInfo, FileKind, FileOperation, FilePath, FileReader, FileWriter, List, Page,
    Precondition, WriteOptions,
};
pub use gc::Collected;
pub use hotcell_agent_client::{CellForm, CellValue};
pub use hotcell_egress::Verdict as EgressVerdict;
pub use hotcell_engine::{Abandonment, Progress, Waiting};
pub use hotcell_store::{CallOutcome, CallRow, MemoryRow, MemorySave};
pub use listing::{Listing, PageCursor, PageRequest};
pub use operation::{Action, log_denial};
pub use pool::PoolView;
pub use port::PortStream;
pub use reconcile::Reconciled;
pub use settings::{CodeSettings, PoolSpec, Settings};
pub use status::{LimitView, PrincipalUse, Status};

use crate::code::Languages;
use crate::container::LiveContainer;
use crate::durable::Durable;
use crate::environment::Environment;
use crate::operation::{Guarded, Operation};
use crate::pool::Pool;
use crate::registry::Registry;

/// The service. Clones share it; when the last one is dropped, all background tasks end as if this
/// process had died, which loses nothing.
#[derive(Clone)]
pub struct Service {
    inner: Guarded,
    _end: Arc<EndOnDrop>,
}

impl Service {
    /// Begins an operation for a caller; returns it together with the inner service.
    fn begin(
        &self,
        caller: &Caller,
        action: Action,
        target: &impl std::fmt::Display,
    ) -> (Operation, Arc<Inner>) {
        self.inner.begin(caller, action, target)
    }
}

/// State that the service and its tasks share.
pub(crate) struct Inner {
    /// The dependencies of the service.
    pub(crate) environment: Arc<Environment>,
    /// The live containers.
    pub(crate) registry: Registry,
    /// The warm pool.
    pub(crate) pool: Arc<Pool>,
    /// The languages that each image can run.
    pub(crate) languages: Languages,
    /// Syncs new persistent containers to disk.
    pub(crate) durable: Durable,
    /// Limits concurrent reconnects to containers that were found at the start.
    pub(crate) reconnecting: Semaphore,
    /// Held during a reconciliation: one at a time.
    pub(crate) reconciling: tokio::sync::Mutex<()>,
    /// Limits concurrent walks through containers' files.
    pub(crate) disk_walks: Semaphore,
    /// When the last reconciliation was, and its result.
    pub(crate) reconciled: Mutex<Option<(u64, Reconciled)>>,
    /// What enforces the limits of new containers.
    pub(crate) enforced: Enforced,
    pub(crate) started_unix_ms: u64,
    is_ready: AtomicBool,
}

/// Ends background tasks when it is dropped.
struct EndOnDrop(Arc<Environment>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.tasks.end();
    }
}

impl Inner {
    /// Fails unless new containers and execs are accepted.
    pub(crate) fn accepting(&self) -> Result<(), ServiceError> {
        if self.is_ready() {
            Ok(())
        } else {
            Err(ServiceError::stopping())
        }
    }

    /// Whether requests are accepted.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Release);
    }

    /// A live container of the caller. Another principal's is reported as missing.
    pub(crate) fn find(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<Arc<LiveContainer>, ServiceError> {
        let container = self.registry.find(&caller.principal, target);
        container
            .filter(|container| !container.phase().is_final())
            .ok_or_else(|| ServiceError::no_container(target))
    }

    /// A running container of the caller, which counts as used now. Waits for one that is being
    /// created.
    pub(crate) async fn running_container(
        &self,
        caller: &Caller,
        target: &ContainerRef,
    ) -> Result<Arc<LiveContainer>, ServiceError> {
        let container = self.find(caller, target)?;
        container.until_created().await?;
        match container.phase() {
            Phase::Running => {}
            Phase::Halted => return Err(container.halted()),
            Phase::Creating | Phase::Stopping | Phase::Stopped | Phase::Failed => {
                return Err(ServiceError::no_container(target));
            }
        }
        container.touch(self.environment.clock.unix_ms());
        Ok(container)
    }
}
