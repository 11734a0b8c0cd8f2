//! Creating a container step by step, and the streams to its agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, StartContainerOptions, UploadToContainerOptionsBuilder,
};
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, Phase, Profile};
use hotcell_image::Credentials;
use tokio::sync::{Mutex as AsyncMutex, OnceCell, Semaphore, SemaphorePermit};

use super::client::{Client, Fault, FaultKind, repeat};
use super::config::{DockerConfig, Flavor};
use super::inspect::DaemonInfo;
use super::locks::Locks;
use super::pulled_images::PulledImages;
use super::stream::{self, ExecStream, OpenError};
use super::usage::Processes;
use super::watch::Watches;
use super::{agent_volume, archive, image, names, profile};
use crate::pulls::Pulls;
use crate::uncommitted::Uncommitted;
use crate::{AgentStream, Container, EngineError, ReadyImage};

/// Containers that are started at the same time. The more an engine starts at once, the longer each
/// takes, until (with gVisor above all) none is up before its timeout.
const STARTS_MAX: usize = 8;

/// Creates and removes containers, one step after the other.
#[derive(Debug)]
pub(super) struct DockerInner {
    pub(super) config: DockerConfig,
    client: Client,
    locks: Locks,
    watches: Watches,
    processes: Processes,
    daemon_info: OnceCell<DaemonInfo>,
    pulls: Pulls,
    pulled: PulledImages,
    credentials: OnceLock<Credentials>,
    agent_volume: String,
    /// Whether the agent's volume is known to be complete.
    agent_is_there: AsyncMutex<bool>,
    starts: Semaphore,
    /// Streams that `create` opened as a check; the first `open` takes them.
    ready: Mutex<HashMap<ContainerId, ExecStream>>,
}

impl DockerInner {
    pub(super) fn new(config: DockerConfig) -> Self {
        Self {
            client: Client::new(config.flavor, config.host.clone()),
            locks: Locks::default(),
            watches: Watches::default(),
            processes: Processes::default(),
            daemon_info: OnceCell::new(),
            pulls: Pulls::default(),
            pulled: PulledImages::default(),
            credentials: OnceLock::new(),
            agent_volume: agent_volume::volume_name(config.agent),
            agent_is_there: AsyncMutex::new(false),
            starts: Semaphore::new(STARTS_MAX),
            ready: Mutex::default(),
            config,
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn flavor(&self) -> Flavor {
        self.config.flavor
    }

    pub(super) fn pulls(&self) -> &Pulls {
        &self.pulls
    }

    pub(super) fn pulled(&self) -> &PulledImages {
        &self.pulled
    }

    pub(super) fn credentials(&self) -> &OnceLock<Credentials> {
        &self.credentials
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    pub(super) fn processes(&self) -> &Processes {
        &self.processes
    }

    pub(super) fn agent_volume(&self) -> &str {
        &self.agent_volume
    }

    /// See [`crate::Engine::create`]. Between two steps it checks whether the request was
    /// abandoned. The container stays locked until it is taken or undone.
    pub(super) async fn create(
        self: &Arc<Self>,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: &ReadyImage,
        is_abandoned: impl Fn() -> bool + Send + Sync,
    ) -> Result<Uncommitted<Container>, EngineError> {
        let local_image = image.payload(spec)?;
        let daemon_info = self.daemon_info().await?;
        daemon_info.check(&self.config, &spec.value().limits)?;
        let lock = self.locks.lock(id).await;
        if let Some(container) = self.existing(id).await? {
            return Ok(Uncommitted::existing(container));
        }
        match self
            .make(id, spec.value(), local_image, &is_abandoned)
            .await
        {
            Ok(container) => {
                let (inner, id) = (Arc::clone(self), id.clone());
                Ok(Uncommitted::made(container, move || {
                    inner.undo_later(id, lock);
                }))
            }
            Err(error) => {
                self.undo_now_or_later(id, lock).await;
                Err(error)
            }
        }
    }

    /// A container that already exists. A half-created one is removed first.
    async fn existing(&self, id: &ContainerId) -> Result<Option<Container>, EngineError> {
        let found = match self.inspect(id).await {
            Err(EngineError::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        if found.phase != Phase::Creating {
            return Ok(Some(found));
        }
        match self.destroy(id).await {
            Ok(()) | Err(EngineError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn make(
        self: &Arc<Self>,
        id: &ContainerId,
        spec: &ContainerSpec,
        image: &image::LocalImage,
        is_abandoned: &(impl Fn() -> bool + Sync),
    ) -> Result<Container, EngineError> {
        let go_on = || {
            let wanted = (!is_abandoned()).then_some(());
            wanted.ok_or(EngineError::Abandoned)
        };
        self.ensure_agent(id, image).await?;
        let _permit = self.start_permit().await;
        go_on()?;
        self.make_volume(id).await?;
        go_on()?;
        let mount = agent_volume::AgentMount::draw()?;
        self.make_container(id, spec, image, &mount).await?;
        go_on()?;
        self.start_with_workspace(id, image).await?;
        go_on()?;
        self.reach_agent(id, &mount.agent()).await?;
        self.inspect_new(id).await
    }

    /// Waits until fewer than [`STARTS_MAX`] containers are being started.
    pub(super) async fn start_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.starts.acquire().await.ok()
    }

    /// Makes sure that the agent's volume is complete, and returns whether it was not.
    async fn ensure_agent(
        &self,
        id: &ContainerId,
        image: &image::LocalImage,
    ) -> Result<bool, EngineError> {
        let mut is_there = self.agent_is_there.lock().await;
        if *is_there {
            return Ok(false);
        }
        let (volume, filler) = (&self.agent_volume, names::of_filler(id));
        let ensured = agent_volume::ensure(&self.client, &self.config, volume, &filler, image);
        let was_missing = ensured.await?;
        *is_there = true;
        Ok(was_missing)
    }

    async fn make_volume(&self, id: &ContainerId) -> Result<(), EngineError> {
        let request = VolumeCreateRequest {
            name: Some(names::of(id)),
            labels: Some(names::labels(&self.config.scope, id)),
            ..VolumeCreateRequest::default()
        };
        let step = "make the workspace";
        let made = self.client.call(step, |api| api.create_volume(request));
        made.await?;
        Ok(())
    }

    async fn make_container(
        &self,
        id: &ContainerId,
        spec: &ContainerSpec,
        image: &image::LocalImage,
        mount: &agent_volume::AgentMount,
    ) -> Result<(), EngineError> {
        let (name, daemon_info) = (names::of(id), self.daemon_info().await?);
        let agent = profile::Agent {
            volume: &self.agent_volume,
            mount,
        };
        let body = profile::body(&self.config, daemon_info, id, spec, image, &agent);
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let step = "make the container";
        let made = self
            .client
            .call(step, |api| api.create_container(Some(options), body));
        for warning in made.await?.warnings {
            tracing::warn!(container.id = %id, warning, "the engine does not do all it was asked");
        }
        Ok(())
    }

    /// Starts the container, and makes its user the owner of the workspace: a new volume belongs to
    /// root.
    async fn start_with_workspace(
        &self,
        id: &ContainerId,
        image: &image::LocalImage,
    ) -> Result<(), EngineError> {
        match self.config.flavor {
            Flavor::Docker => {
                self.give_workspace(id).await?;
                self.start(id, image).await
            }
            // Podman changes the owner of a new volume to the user that the container starts as.
            Flavor::Podman => {
                self.start(id, image).await?;
                self.give_workspace(id).await
            }
        }
    }

    async fn give_workspace(&self, id: &ContainerId) -> Result<(), EngineError> {
        let name = names::of(id);
        let step = "give the workspace to its user";
        let archive = archive::ownership().map_err(EngineError::engine(step))?;
        let options = UploadToContainerOptionsBuilder::default()
            .path(Profile::WORKSPACE)
            .build();
        let body = bollard::body_full(archive.into());
        let given = self.client.call(step, |api| {
            api.upload_to_container(&name, Some(options), body)
        });
        Ok(given.await?)
    }

    /// Starts the container. If somebody removed the agent's volume, the engine created an empty one:
    /// then it is filled again, once.
    async fn start(&self, id: &ContainerId, image: &image::LocalImage) -> Result<(), EngineError> {
        let Err(fault) = self.try_start(id).await else {
            return Ok(());
        };
        *self.agent_is_there.lock().await = false;
        let is_worth_a_look = matches!(
            fault.kind,
            FaultKind::Missing | FaultKind::Conflict | FaultKind::Refused
        );
        if is_worth_a_look && self.ensure_agent(id, image).await? {
            return Ok(self.try_start(id).await?);
        }
        Err(fault.into())
    }

    pub(super) async fn try_start(&self, id: &ContainerId) -> Result<(), Fault> {
        let name = names::of(id);
        let start = || {
            self.client.call("start the container", |api| {
                api.start_container(&name, None::<StartContainerOptions>)
            })
        };
        repeat(start, Fault::is_worth_another_try).await
    }

    /// Opens the first stream to the agent of a container that was just started, whose binary is at
    /// that path inside, and keeps it for the next `open`.
    pub(super) async fn reach_agent(
        self: &Arc<Self>,
        id: &ContainerId,
        agent: &str,
    ) -> Result<(), OpenError> {
        let name = names::of(id);
        let open = || stream::open(&self.client, &name, agent);
        let stream = repeat(open, OpenError::is_worth_another_try).await?;
        self.keep_ready(id, stream.watched(self.watch(id)));
        Ok(())
    }

    /// See [`crate::Engine::open`].
    pub(super) async fn open(
        self: &Arc<Self>,
        id: &ContainerId,
    ) -> Result<AgentStream, EngineError> {
        if let Some(stream) = self.take_ready(id) {
            return Ok(AgentStream::new(stream));
        }
        let agent = self.agent_of(id).await?;
        match stream::open(&self.client, &names::of(id), &agent).await {
            Ok(stream) => Ok(AgentStream::new(stream.watched(self.watch(id)))),
            Err(OpenError::Fault(fault)) if fault.kind == FaultKind::Missing => {
                Err(EngineError::NotFound { id: id.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The path of the agent in a container: the program of its PID 1.
    pub(super) async fn agent_of(&self, id: &ContainerId) -> Result<String, EngineError> {
        let found = self.find_container(id).await?;
        let found = found.ok_or_else(|| EngineError::NotFound { id: id.clone() })?;
        Ok(found.path.unwrap_or_default())
    }

    /// See [`crate::Engine::exited`].
    pub(super) async fn exited(self: &Arc<Self>, id: &ContainerId) -> Result<(), EngineError> {
        if self.find_container(id).await?.is_none() {
            self.inspect(id).await?;
            return Ok(());
        }
        self.watch(id).ended().await;
        Ok(())
    }

    pub(super) fn keep_ready(&self, id: &ContainerId, stream: ExecStream) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.retain(|_, stream| !stream.has_ended());
        ready.insert(id.clone(), stream);
    }

    pub(super) fn take_ready(&self, id: &ContainerId) -> Option<ExecStream> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = ready.remove(id)?;
        (!stream.has_ended()).then_some(stream)
    }

    pub(super) async fn daemon_info(&self) -> Result<DaemonInfo, EngineError> {
        let ask = || DaemonInfo::ask(&self.client, self.config.runtime.as_deref());
        self.daemon_info.get_or_try_init(ask).await.copied()
    }
}
