//! The container of one `hotcell run`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use hotcell_agent_client::Agent;
use hotcell_domain::{ContainerId, ContainerSpec, Lifetime, Policy};
use hotcell_engine::{
    Embedded, EmbeddedConfig, Enforced, Enforcement, Engine, Garbage, SweepMode, fetch_and_create,
};

use crate::cli::RunArgs;
use crate::id::new_container_id;
use crate::{image, state};

/// A container that runs and an agent that answers.
pub(super) struct Running {
    engine: Embedded,
    id: ContainerId,
    agent: Agent,
    enforced: Enforced,
}

impl Running {
    /// Makes the container and connects to its agent.
    pub(super) async fn create(arguments: &RunArgs) -> Result<Self> {
        let images = image::open(&arguments.state)?;
        let engine = open_engine(arguments)?.with_images(images.clone());
        let spec = policy(arguments)
            .admit(spec(arguments))
            .inspect_err(|refusal| image::log_denial(&arguments.image, refusal))
            .map_err(image::advised_refusal)?;
        if let Some(source) = spec.image() {
            image::ensure(&images, &source).await?;
        }
        let id = new_container_id()?;
        let container = fetch_and_create(&engine, &id, &spec)
            .await
            .map_err(advise)?;
        warn_of(container.enforced);
        let stream = engine.open(&id).await.map_err(advise)?;
        match Agent::connect(stream).await {
            Ok(agent) => Ok(Self {
                engine,
                id,
                agent,
                enforced: container.enforced,
            }),
            Err(error) => {
                engine.destroy(&id).await.map_err(advise)?;
                Err(error).context("reach the container's agent")
            }
        }
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(super) fn enforced(&self) -> Enforced {
        self.enforced
    }

    /// Whether the kernel killed something in it for want of memory.
    pub(super) async fn ran_out_of_memory(&self) -> bool {
        self.engine
            .inspect(&self.id)
            .await
            .is_ok_and(|container| container.oom_kills > 0)
    }

    /// Removes every trace of it, and of what earlier runs that were killed left.
    pub(super) async fn remove(self) -> Result<()> {
        self.engine.destroy(&self.id).await.map_err(advise)?;
        if let Err(error) = self
            .engine
            .sweep(Garbage::Containers, SweepMode::Remove)
            .await
        {
            tracing::warn!(%error, "what an earlier run left stays");
        }
        Ok(())
    }
}

fn open_engine(arguments: &RunArgs) -> Result<Embedded> {
    let config = EmbeddedConfig {
        home: state::directory(arguments.state.state_dir.clone())?.join("run"),
        launcher: PathBuf::from("/proc/self/exe"),
        cgroups: true,
        agent: hotcell_agent_image::AGENT,
        require_limits: arguments.require_limits,
    };
    Embedded::open(config).map_err(advise)
}

/// Whoever may start this program may read the host's files anyway.
fn policy(arguments: &RunArgs) -> Policy {
    Policy {
        // Whoever runs this command is the operator.
        maxima: None,
        allow_network: false,
        allow_rootfs: true,
        allow_root: false,
        images: arguments.images.policy(),
    }
}

fn spec(arguments: &RunArgs) -> ContainerSpec {
    let mut spec = ContainerSpec::new(arguments.image.clone());
    spec.lifetime = Lifetime::WithOwner;
    spec.limits = arguments.limits.limits();
    spec
}

/// A person who sees the engine fail wants to know where to look.
fn advise(error: hotcell_engine::EngineError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    anyhow!("{error:#}; `hotcell doctor` tells what this host lacks and how to mend it")
}

/// A limit that does not hold is never silently absent.
fn warn_of(enforced: Enforced) {
    let limits = [
        ("memory", enforced.memory),
        ("cpus", enforced.cpus),
        ("pids", enforced.pids),
    ];
    for (kind, how) in [
        (Enforcement::None, "here"),
        (Enforcement::Rlimit, "as a whole, only for each process"),
    ] {
        let these = limits.iter().filter(|(_, found)| *found == kind);
        let these: Vec<_> = these.map(|(name, _)| *name).collect();
        if !these.is_empty() {
            let these = these.join(", ");
            eprintln!(
                "hotcell: this host does not limit {these} {how}; `hotcell doctor` tells why"
            );
        }
    }
}
