//! The embedded engine: containers out of the kernel's own parts, without a daemon.
//!
//! ```text
//! HOME/containers/ID/        0700, named by the container's id
//!   state.json               what a later process needs to find the container again
//!   agent.sock               where the agent listens
//!   agent.log                what the agent says before it dies
//!   workspace/               the container's /workspace
//! ```
//!
//! The directory is made first and removed last, so whatever exists of a container
//! has one: a process that dies at any line leaves something that `list` shows and
//! `destroy` removes.

mod home;
mod make;
mod remove;
mod search;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, Phase};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use self::home::{Record, Stage};
use self::make::Maker;
use crate::{AgentStream, Container, Enforced, Engine, EngineError};

/// What the embedded engine needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// Where its containers' directories are.
    pub home: PathBuf,
    /// The program that becomes the launcher when it is started as one.
    pub launcher: PathBuf,
    /// The agent's static binary.
    pub agent: &'static [u8],
    /// Put containers into cgroups, where the host has them. Without, their limits
    /// are rlimits at best.
    pub cgroups: bool,
    /// Refuse to make a container whose limits cannot all be enforced.
    pub require_limits: bool,
}

/// Makes containers out of namespaces, cgroups and seccomp.
#[derive(Debug)]
pub struct Embedded {
    maker: Arc<Maker>,
}

impl Embedded {
    /// Opens the engine's home, makes it if it is missing, and starts the launcher.
    pub fn open(config: EmbeddedConfig) -> Result<Self, EngineError> {
        Ok(Self {
            maker: Arc::new(Maker::open(config)?),
        })
    }

    /// Removes what dead processes left: containers that were to end with their owner,
    /// and half-made ones. Answers how many.
    pub async fn sweep(&self) -> Result<usize, EngineError> {
        self.blocking(|maker| {
            let mut removed = 0;
            for id in maker.home().ids()? {
                if maker
                    .home()
                    .read(&id)?
                    .is_some_and(|record| record.is_abandoned())
                {
                    maker.destroy(&id)?;
                    removed += 1;
                }
            }
            Ok(removed)
        })
        .await
    }

    /// The kernel's calls are short but not asynchronous.
    async fn blocking<T, F>(&self, work: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&Maker) -> Result<T, EngineError> + Send + 'static,
    {
        let maker = Arc::clone(&self.maker);
        tokio::task::spawn_blocking(move || work(&maker))
            .await
            .map_err(EngineError::engine("run the engine's work"))?
    }
}

#[async_trait]
impl Engine for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
    ) -> Result<Container, EngineError> {
        let (answer, answered) = oneshot::channel();
        let maker = Arc::clone(&self.maker);
        let (id, spec) = (id.clone(), spec.clone());
        // The work goes on when our caller is dropped, so it must notice that nobody
        // waits for the container any more.
        tokio::task::spawn_blocking(move || {
            let made = maker.create(&id, spec.value());
            if let Err(Ok(_)) = answer.send(made)
                && let Err(error) = maker.destroy(&id)
            {
                tracing::warn!(container.id = %id, %error, "an unwanted container stays");
            }
        });
        let made = answered
            .await
            .map_err(EngineError::engine("make the container"))?;
        Ok(describe(made?))
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        let socket = self.maker.home().socket(id)?;
        let stream = UnixStream::connect(socket.path()).await;
        let stream = stream.map_err(EngineError::engine("connect to the agent"))?;
        Ok(AgentStream::new(stream))
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        let id = id.clone();
        self.blocking(move |maker| Ok(describe(maker.home().require(&id)?)))
            .await
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.blocking(|maker| {
            let mut containers = Vec::new();
            for id in maker.home().ids()? {
                if let Some(record) = maker.home().read(&id)? {
                    containers.push(describe(record));
                }
            }
            Ok(containers)
        })
        .await
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        let id = id.clone();
        self.blocking(move |maker| maker.destroy(&id)).await
    }

    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        let record = self.maker.home().require(id)?;
        let Some(pidfd) = record.pidfd()? else {
            return Ok(());
        };
        // A pidfd becomes readable when its process ends.
        let step = "watch the container";
        #[expect(
            deprecated,
            reason = "an `OwnedFd` is the same descriptor for all its life"
        )]
        let pidfd = AsyncFd::new(pidfd).map_err(EngineError::engine(step))?;
        pidfd
            .readable()
            .await
            .map_err(EngineError::engine(step))?
            .retain_ready();
        Ok(())
    }
}

fn describe(record: Record) -> Container {
    let phase = match &record.stage {
        Stage::Making => Phase::Creating,
        Stage::Made(init) if init.is_alive() => Phase::Running,
        Stage::Made(_) => Phase::Stopped,
    };
    let cgroup = match &record.stage {
        Stage::Making => None,
        Stage::Made(init) => Some(&init.cgroup),
    };
    Container {
        phase,
        enforced: record.enforced().unwrap_or(Enforced::NOTHING),
        oom_kills: cgroup.map_or(0, hotcell_runtime::cgroup::Place::oom_kills),
        memory_bytes: cgroup.and_then(hotcell_runtime::cgroup::Place::memory_bytes),
        id: record.id,
    }
}
