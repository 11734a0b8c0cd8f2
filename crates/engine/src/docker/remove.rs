//! Removes containers in any state.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveVolumeOptionsBuilder,
};
use hotcell_domain::{ContainerId, Phase};

use super::client::{CALL_TIMEOUT, Fault, FaultKind, optional, repeat};
use super::create::DockerInner;
use super::locks::Lock;
use super::{agent_volume, dialect, inspect, names};
use crate::{EngineError, Swept};

/// Attempts to remove an object that someone else is removing at the same time.
const BUSY_TRIES_MAX: u32 = 1200;

/// The pause between two of these attempts.
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// Attempts to remove what a failed `create` left while the engine does not answer. After that,
/// `sweep` removes it.
const UNDO_TRIES_MAX: u32 = 40;

/// The pause before the second of these attempts; it doubles up to the bound below.
const UNDO_PAUSE: Duration = Duration::from_millis(100);
const UNDO_PAUSE_MAX: Duration = Duration::from_secs(15);

/// A container that has been half created for this long is abandoned: all steps together take
/// less, except for a pull, which comes before them.
const HALF_MADE_SECONDS_MAX: u64 = 10 * CALL_TIMEOUT.as_secs();

impl DockerInner {
    /// See [`crate::Engine::destroy`]. The caller holds the container's lock.
    pub(super) async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        drop(self.take_ready(id));
        let container = self.find_container(id).await?;
        let was_there = match &container {
            Some(_) => self.remove_container(&names::of(id)).await?,
            None => false,
        };
        self.watches().destroyed(id);
        self.processes().forget(id);
        if self.remove_volume(id, was_there).await? || was_there {
            return Ok(());
        }
        Err(EngineError::NotFound { id: id.clone() })
    }

    /// Removes everything that `create` creates.
    async fn undo(&self, id: &ContainerId) -> Result<(), EngineError> {
        agent_volume::remove_filler(self.client(), &names::of_filler(id)).await?;
        self.destroy(id).await
    }

    /// Removes leftovers of a failed `create`; in the background if the engine does not answer.
    pub(super) async fn undo_now_or_later(self: &Arc<Self>, id: &ContainerId, lock: Lock) {
        match self.undo(id).await {
            Ok(()) | Err(EngineError::NotFound { .. }) => drop(lock),
            Err(_) => Arc::clone(self).undo_later(id.clone(), lock),
        }
    }

    /// Removes a container that was created but not taken, in the background.
    pub(super) fn undo_later(self: Arc<Self>, id: ContainerId, lock: Lock) {
        // Without a runtime the process is about to exit, and the next server's `sweep` removes it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let mut pause = UNDO_PAUSE;
            for _ in 0..UNDO_TRIES_MAX {
                match self.undo(&id).await {
                    Ok(()) | Err(EngineError::NotFound { .. }) => return drop(lock),
                    Err(error) => {
                        tracing::debug!(container.id = %id, %error, "could not be removed yet");
                    }
                }
                tokio::time::sleep(pause).await;
                pause = UNDO_PAUSE_MAX.min(pause * 2);
            }
            tracing::warn!(container.id = %id, "a container that nobody took is left to sweep");
        });
    }

    /// See [`crate::Engine::sweep`].
    pub(super) async fn sweep(&self) -> Result<Swept, EngineError> {
        let mut swept = 0;
        for container in self.list().await? {
            swept += usize::from(self.sweep_container(&container.id).await);
        }
        swept += self.sweep_fillers().await?;
        Ok(Swept::leftovers(swept + self.sweep_agents().await?))
    }

    /// What [`DockerInner::sweep`] would remove. An agent's volume that only abandoned containers use
    /// counts once these are gone.
    pub(super) async fn leftovers(&self) -> Result<Swept, EngineError> {
        let mut left = 0;
        for container in self.list().await? {
            let _lock = self.locks().lock(&container.id).await;
            left += usize::from(self.is_abandoned(&container.id).await?);
        }
        left += self.abandoned_fillers().await?.len();
        for agent in self.other_agents().await? {
            left += usize::from(!self.is_mounted(&agent).await?);
        }
        Ok(Swept::leftovers(left))
    }

    /// Removes a container if it was abandoned.
    async fn sweep_container(&self, id: &ContainerId) -> bool {
        let _lock = self.locks().lock(id).await;
        let removed = match self.is_abandoned(id).await {
            Ok(true) => self.destroy(id).await.map(|()| true),
            other => other,
        };
        removed.unwrap_or_else(|error| {
            tracing::warn!(container.id = %id, %error, "an abandoned container stays");
            false
        })
    }

    async fn is_abandoned(&self, id: &ContainerId) -> Result<bool, EngineError> {
        let is_old = |labels: Option<&names::Labels>| {
            let age = labels.and_then(names::age_seconds);
            age.is_none_or(|age| age > HALF_MADE_SECONDS_MAX)
        };
        let Some(found) = self.find_container(id).await? else {
            let name = names::of(id);
            let volume = self
                .client()
                .call("look for a workspace", |api| api.inspect_volume(&name));
            return Ok(optional(volume.await)?.is_some_and(|volume| is_old(Some(&volume.labels))));
        };
        let labels = found
            .config
            .as_ref()
            .and_then(|config| config.labels.as_ref());
        let ends = labels.and_then(|labels| labels.get(names::LIFETIME_LABEL));
        Ok(match inspect::phase(found.state.as_ref()) {
            Phase::Creating => is_old(labels),
            Phase::Stopped | Phase::Failed => ends.is_some_and(|ends| ends == names::WITH_OWNER),
            Phase::Running | Phase::Halted | Phase::Stopping => false,
        })
    }

    /// Containers that fill an agent's volume, left by a process that died.
    async fn abandoned_fillers(&self) -> Result<Vec<String>, EngineError> {
        let filter = names::filter_agents(&self.config.scope);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filter)
            .build();
        let step = "look for what is left";
        let found = self.client().call(step, async |api| {
            dialect::listed(api.list_containers(Some(options)).await)
        });
        let is_old = |container: &ContainerSummary| {
            let age = container.labels.as_ref().and_then(names::age_seconds);
            age.is_none_or(|age| age > HALF_MADE_SECONDS_MAX)
        };
        let fillers = found.await?.into_iter().filter(is_old);
        Ok(fillers
            .map(|filler| filler.id.unwrap_or_default())
            .collect())
    }

    async fn sweep_fillers(&self) -> Result<usize, EngineError> {
        let mut swept = 0;
        for name in self.abandoned_fillers().await? {
            match agent_volume::remove_filler(self.client(), &name).await {
                Ok(()) => swept += 1,
                Err(fault) => {
                    let cause = fault.text();
                    tracing::warn!(container = name, cause, "an abandoned container stays");
                }
            }
        }
        Ok(swept)
    }

    /// Volumes with agents of other versions.
    async fn other_agents(&self) -> Result<Vec<String>, EngineError> {
        let filter = names::filter_agents(&self.config.scope);
        let options = ListVolumesOptionsBuilder::default()
            .filters(&filter)
            .build();
        let step = "look for what is left";
        let found = self
            .client()
            .call(step, |api| api.list_volumes(Some(options)));
        let volumes = found.await?.volumes.unwrap_or_default().into_iter();
        let names = volumes.map(|volume| volume.name);
        Ok(names.filter(|name| *name != self.agent_volume()).collect())
    }

    /// Removes agents' volumes of other versions; the engine keeps those in use.
    async fn sweep_agents(&self) -> Result<usize, EngineError> {
        let mut swept = 0;
        for volume in self.other_agents().await? {
            match self.try_remove_volume(&volume).await {
                Ok(removed) => swept += usize::from(removed == Some(true)),
                Err(fault) => {
                    let cause = fault.text();
                    tracing::warn!(volume, cause, "an unused agent stays");
                }
            }
        }
        Ok(swept)
    }

    /// Whether any container uses a volume.
    async fn is_mounted(&self, volume: &str) -> Result<bool, EngineError> {
        let filter = HashMap::from([("volume".to_owned(), vec![volume.to_owned()])]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filter)
            .build();
        let step = "see who uses a volume";
        let found = self.client().call(step, async |api| {
            dialect::listed(api.list_containers(Some(options)).await)
        });
        Ok(!found.await?.is_empty())
    }

    /// Kills and removes a container; false if there was none.
    async fn remove_container(&self, name: &str) -> Result<bool, EngineError> {
        for _ in 0..BUSY_TRIES_MAX {
            let remove = || {
                let options = RemoveContainerOptionsBuilder::default()
                    .force(true)
                    .v(true)
                    .build();
                let step = "remove the container";
                self.client()
                    .call(step, |api| api.remove_container(name, Some(options)))
            };
            match optional(repeat(remove, Fault::is_worth_another_try).await) {
                Ok(removed) => return Ok(removed.is_some()),
                Err(fault) if fault.kind == FaultKind::Conflict => {}
                Err(fault) => return Err(fault.into()),
            }
            tokio::time::sleep(BUSY_INTERVAL).await;
        }
        Err(EngineError::engine("remove the container")(
            "it is busy for too long",
        ))
    }

    /// Removes a container's volume if it is ours; false if there was none. An engine that creates
    /// a container late also creates its volume again if that was removed meanwhile, possibly
    /// without labels: it is ours if the container was.
    async fn remove_volume(
        &self,
        id: &ContainerId,
        container_was_ours: bool,
    ) -> Result<bool, EngineError> {
        let name = names::of(id);
        let found = self
            .client()
            .call("look for the workspace", |api| api.inspect_volume(&name));
        let Some(volume) = optional(found.await)? else {
            return Ok(false);
        };
        let owner = names::owner(&self.config.scope, Some(&volume.labels));
        let is_ours = match owner {
            Some(owner) => owner == *id,
            None => container_was_ours && !volume.labels.contains_key(names::SCOPE_LABEL),
        };
        if !is_ours {
            return Ok(false);
        }
        for _ in 0..BUSY_TRIES_MAX {
            if let Some(removed) = self.try_remove_volume(&name).await? {
                return Ok(removed);
            }
            tokio::time::sleep(BUSY_INTERVAL).await;
        }
        Err(EngineError::engine("remove the workspace")(
            "it is in use for too long",
        ))
    }

    /// Removes a volume; `None` if it is in use.
    async fn try_remove_volume(&self, name: &str) -> Result<Option<bool>, Fault> {
        let remove = || {
            let options = RemoveVolumeOptionsBuilder::default().build();
            self.client().call("remove the volume", |api| {
                api.remove_volume(name, Some(options))
            })
        };
        match optional(repeat(remove, Fault::is_worth_another_try).await) {
            Ok(removed) => Ok(Some(removed.is_some())),
            Err(fault) if fault.kind == FaultKind::Conflict => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}
