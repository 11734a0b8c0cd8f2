//! The container of one `hotcell run`.

use anyhow::{Context, Result};
use hotcell_domain::{Caller, Command, ContainerRef};
use hotcell_service::{
    ContainerView, ExecStream, LimitView, Service, ServiceError, Snippet, Spawn,
};

use super::outcome::option_of;
use crate::cli::ContainerArgs;
use crate::config::Tables;
use crate::temporary::{StartingEngine, TemporaryService, advise};

/// A running container that ends with this process.
pub(super) struct RunContainer {
    temporary: TemporaryService,
    caller: Caller,
    id: ContainerRef,
    limits: Vec<LimitView>,
}

impl RunContainer {
    /// Creates the container and connects to its agent.
    pub(super) async fn create(
        arguments: &ContainerArgs,
        tables: &Tables,
        engine: StartingEngine,
    ) -> Result<Self> {
        // Where logs would be: the output of this exec goes to us instead.
        let logs = engine.home().to_owned();
        let temporary = TemporaryService::start(arguments, tables, engine, &logs).await?;
        let caller = Caller::local();
        let spawned = temporary.service().spawn(&caller, Spawn::default()).await;
        let ContainerView { id, enforced, .. } = spawned.map_err(advise)?;
        warn_of_missing(&enforced);
        Ok(Self {
            temporary,
            caller,
            id: ContainerRef::Id(id),
            limits: enforced,
        })
    }

    pub(super) fn service(&self) -> &Service {
        self.temporary.service()
    }

    pub(super) fn id(&self) -> &ContainerRef {
        &self.id
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What enforces each limit.
    pub(super) fn limits(&self) -> &[LimitView] {
        &self.limits
    }

    /// Copies a snippet into the container and returns the command that runs it.
    pub(super) async fn stage(&self, snippet: Snippet, arguments: Vec<String>) -> Result<Command> {
        let service = self.service();
        let staged = service.stage_snippet(&self.caller, &self.id, snippet, arguments);
        staged.await.context("copy the code into the container")
    }

    pub(super) async fn start(&self, command: Command) -> Result<ExecStream> {
        let started = self.service().exec_stream(&self.caller, &self.id, command);
        started.await.context("start the command")
    }

    /// Removes the container completely, and leftovers of earlier runs that were killed.
    pub(super) async fn remove(self) -> Result<()> {
        let kill = self.service().kill(&self.caller, &self.id, true);
        let (killed, ()) = tokio::join!(kill, self.temporary.sweep());
        // Only threads and the launcher are left, which end with this process; ending them one by
        // one would only take time.
        std::mem::forget(self);
        match killed {
            Ok(()) | Err(ServiceError::NotFound { .. }) => Ok(()),
            Err(error) => Err(advise(error)),
        }
    }
}

/// Warns about limits that this host cannot enforce.
fn warn_of_missing(limits: &[LimitView]) {
    for (by, how) in [
        (None, "here"),
        (Some("rlimit"), "as a whole, only for each process"),
    ] {
        let missing: Vec<_> = limits
            .iter()
            .filter(|limit| limit.by == by)
            .map(option_of)
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            eprintln!(
                "hotcell: this host does not limit {missing} {how}; `hotcell doctor` tells why"
            );
        }
    }
}
