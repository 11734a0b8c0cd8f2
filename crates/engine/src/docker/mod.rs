//! Docker and Podman, over the API that both speak.
//!
//! ```text
//! container hotcell-c_…   PID 1 is /.hotcell-…/hotcell-agent, user 1000
//!   volume hotcell-c_…      /workspace, goes with the container
//!   volume hotcell-agent-…  /.hotcell-…, read-only, one for each version of the agent
//! open() = one exec of `hotcell-agent connect` as another user: a stream to the agent
//! ```
//!
//! Everything made here carries labels: the container's id, and the scope of the server
//! that it belongs to, so that two servers on one engine do not see each other's. The
//! volume is made before the container and removed after it, and whatever has a label is
//! listed, so a process that dies at any line leaves something that `list` shows and
//! `destroy` removes. No operation in a container goes through the engine: see `stream`.

mod agent_volume;
mod archive;
mod client;
mod config;
mod create;
mod dialect;
mod image;
mod inspect;
mod locks;
mod names;
mod probe;
mod profile;
mod pulled_images;
mod remove;
mod restart;
mod stream;
mod usage;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId};
use tokio::sync::oneshot;

use self::create::DockerInner;
use crate::{
    AgentStream, Container, Enforced, Engine, EngineError, HostSize, Progress, SweptImages,
};

pub use config::{DockerConfig, Flavor, Host, HostError, Tls};
pub use probe::{About, about};

/// Makes containers with Docker or Podman.
///
/// Needs no connection to exist: each call finds the engine or says that it is away, and
/// the next call finds it once it is back.
#[derive(Debug)]
pub struct Docker {
    inner: Arc<DockerInner>,
}

impl Docker {
    /// An engine at that host. Nothing is asked of it yet.
    pub fn new(config: DockerConfig) -> Self {
        Self {
            inner: Arc::new(DockerInner::new(config)),
        }
    }
}

impl Docker {
    /// Remembers in this file which images were pulled, so that they are removed when nobody
    /// uses them. Without, what this value pulls is forgotten with it, and stays.
    #[must_use]
    pub fn with_record(self, path: PathBuf) -> Self {
        self.inner.pulled().keep_in(path);
        self
    }
}

#[async_trait]
impl Engine for Docker {
    fn name(&self) -> &'static str {
        self.inner.flavor().name()
    }

    fn identity(&self) -> EngineId {
        EngineId::at(self.name(), self.inner.config.host.to_string())
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let source = profile::check(spec)?;
        self.inner.image(&source, progress).await.map(drop)
    }

    async fn image_id(
        &self,
        spec: &Admitted<ContainerSpec>,
    ) -> Result<Option<String>, EngineError> {
        let found = self.inner.local_image(&profile::check(spec)?).await?;
        Ok(found.map(|image| image.id))
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
    ) -> Result<Container, EngineError> {
        let (answer, answered) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let (asked, spec) = (id.clone(), spec.clone());
        // The work goes on when our caller is dropped; the answer that nobody takes then
        // unmakes the container.
        tokio::spawn(async move {
            let made = inner.create(&asked, &spec, || answer.is_closed()).await;
            drop(answer.send(made));
        });
        let uncommitted = answered
            .await
            .map_err(EngineError::engine("make the container"))??;
        Ok(uncommitted.keep())
    }

    async fn restart(&self, id: &ContainerId) -> Result<Container, EngineError> {
        self.inner.restart(id).await
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

    async fn limits(&self) -> Result<Enforced, EngineError> {
        Ok(self.inner.daemon_info().await?.enforced)
    }

    async fn host_size(&self) -> Result<HostSize, EngineError> {
        let daemon_info = self.inner.daemon_info().await?;
        Ok(daemon_info.host_size(HostSize::read()))
    }

    /// Agents of other versions that nothing uses go too. One thing that cannot be removed
    /// is logged and keeps the others from nothing.
    async fn sweep(&self) -> Result<usize, EngineError> {
        self.inner.sweep().await
    }

    async fn leftovers(&self) -> Result<usize, EngineError> {
        self.inner.leftovers().await
    }

    /// Only what we pulled is ours to remove.
    async fn sweep_images(
        &self,
        idle: Option<Duration>,
        dry_run: bool,
    ) -> Result<SweptImages, EngineError> {
        self.inner.sweep_images(idle, dry_run).await
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
