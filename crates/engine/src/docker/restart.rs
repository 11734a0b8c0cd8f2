//! Restarts a container that the engine still has.

use std::sync::Arc;

use bollard::query_parameters::KillContainerOptionsBuilder;
use hotcell_domain::{ContainerId, Phase};

use super::client::FaultKind;
use super::create::DockerInner;
use super::names;
use crate::{Abandonment, Container, EngineError};

impl DockerInner {
    /// See [`crate::Engine::restart`]. Its volumes are unchanged: the engine keeps them as long as
    /// a container refers to them.
    pub(super) async fn restart(
        self: &Arc<Self>,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.daemon_info().await?.check_enforced(&self.config)?;
        let _lock = self.locks().lock(id).await;
        abandonment.check()?;
        drop(self.take_ready(id));
        match self.inspect(id).await?.phase {
            Phase::Running => self.kill(id).await?,
            // Half created, or a workspace whose container is gone.
            Phase::Creating => {
                let step = "start the container again";
                return Err(EngineError::engine(step)("there is no whole container"));
            }
            Phase::Halted | Phase::Stopping | Phase::Stopped | Phase::Failed => {}
        }
        self.watches().ended(id);
        self.processes().forget(id);
        let _permit = self.start_permit().await;
        abandonment.check()?;
        self.try_start(id).await?;
        let agent = self.agent_of(id).await?;
        self.reach_agent(id, &agent).await?;
        self.inspect_new(id).await
    }

    /// Kills all processes and waits for the exit. A container that has already exited is fine.
    async fn kill(self: &Arc<Self>, id: &ContainerId) -> Result<(), EngineError> {
        let name = names::of(id);
        let options = KillContainerOptionsBuilder::default()
            .signal("SIGKILL")
            .build();
        let step = "kill the container";
        let killed = self
            .client()
            .call(step, |api| api.kill_container(&name, Some(options)));
        match killed.await {
            Err(fault) if fault.kind != FaultKind::Conflict => return Err(fault.into()),
            Ok(()) | Err(_) => {}
        }
        self.until_stopped(id).await
    }
}
