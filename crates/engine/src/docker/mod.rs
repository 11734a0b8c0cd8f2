//! Docker and Podman, over the API that both speak.
//!
//! ```text
//! container hotcell-c_…   PID 1 is /.hotcell-…/hotcell-agent, user 1000
//!   volume hotcell-c_…      /workspace, goes with the container
//!   volume hotcell-agent-…  /.hotcell-…, read-only, one for each version of the agent
//! open() = one exec of `hotcell-agent connect` as another user: a stream to the agent
//! ```
//!
//! Everything created here carries labels: the container's id and the scope of its server, so that
//! two servers on one engine do not see each other's containers. The volume is created before the
//! container and removed after it, and `list` shows everything with a label: whenever a process
//! dies, `list` shows what it left and `destroy` removes it. Execs and files do not go through the
//! engine: see `stream`.

mod agent_volume;
mod archive;
mod client;
mod config;
mod create;
mod dialect;
mod find;
mod image;
mod inspect;
mod kind;
mod locks;
mod names;
mod probe;
mod profile;
mod pulled_images;
mod remove;
mod restart;
mod scope;
mod stream;
mod usage;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId};
use hotcell_image::Credentials;
use tokio::sync::oneshot;

use self::create::DockerInner;
use crate::{
    Abandonment, AgentStream, Capabilities, Container, Engine, EngineError, Garbage, HostSize,
    Pull, ReadyImage, SweepMode, Swept,
};

pub use config::{DockerConfig, Flavor, Host, HostError, Tls};
pub(crate) use kind::DockerKind;

/// Creates containers with Docker or Podman.
///
/// Holds no connection: each call connects to the engine or reports that it does not answer, and
/// the next call finds it again.
#[derive(Debug)]
pub struct Docker {
    inner: Arc<DockerInner>,
}

impl Docker {
    /// An engine at this address, which is not contacted yet.
    pub fn new(config: DockerConfig) -> Self {
        Self {
            inner: Arc::new(DockerInner::new(config)),
        }
    }
}

impl Docker {
    /// Records in this file which images were pulled, so that they are removed when nobody uses them.
    /// Without it, pulled images stay.
    #[must_use]
    pub fn with_record(self, path: PathBuf) -> Self {
        self.inner.pulled().keep_in(path);
        self
    }

    /// Sets the credentials for pulls. The default is those of this user.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        // Nobody else has it yet, so the credentials cannot have been set by another task.
        let _ = self.inner.credentials().set(credentials);
        self
    }
}

#[async_trait]
impl Engine for Docker {
    fn identity(&self) -> EngineId {
        EngineId::at(
            self.inner.flavor().name(),
            self.inner.config.host.to_string(),
        )
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        let daemon_info = self.inner.daemon_info().await?;
        Ok(Capabilities {
            host_images: false,
            network: true,
            enforced: daemon_info.enforced,
            host_size: daemon_info.host_size(HostSize::read()),
        })
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        let source = profile::check(spec)?;
        let found = self.inner.image(&source, pull, abandonment).await?;
        Ok(ReadyImage::new(spec, Some(found.id.clone()), found))
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        let (answer, answered) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let (asked, spec, abandonment) = (id.clone(), spec.clone(), abandonment.clone());
        // The work continues when the caller's future is dropped; an answer that nobody takes then
        // removes the container.
        tokio::spawn(async move {
            let is_abandoned = || answer.is_closed() || abandonment.is_abandoned();
            let made = inner.create(&asked, &spec, &image, is_abandoned).await;
            drop(answer.send(made));
        });
        let made = answered
            .await
            .map_err(EngineError::engine("make the container"))??;
        Ok(made.commit())
    }

    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.inner.restart(id, abandonment).await
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        self.inner.open(id).await
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        self.inner.inspect(id).await
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.inner.list().await
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        let _lock = self.inner.locks().lock(id).await;
        self.inner.destroy(id).await
    }

    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.inner.exited(id).await
    }

    /// Also removes unused volumes with agents of other versions.
    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError> {
        match (garbage, mode) {
            (Garbage::Containers, SweepMode::Remove) => self.inner.sweep().await,
            (Garbage::Containers, SweepMode::Count) => self.inner.leftovers().await,
            (Garbage::Images { unused_for }, mode) => {
                self.inner.sweep_images(unused_for, mode).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_its_name_and_its_address() {
        let identity = |flavor, host| {
            let config = DockerConfig {
                flavor,
                host,
                runtime: None,
                scope: "here".to_owned(),
                agent: b"",
                require_limits: false,
            };
            Docker::new(config).identity().to_string()
        };
        let socket = Host::Unix("/run/docker.sock".into());
        let near = identity(Flavor::Docker, socket);
        assert_eq!(near, "docker at unix:///run/docker.sock");
        let far = identity(Flavor::Podman, Host::Tcp("10.0.0.5:2376".to_owned()));
        assert_eq!(far, "podman at tcp://10.0.0.5:2376");
    }
}
