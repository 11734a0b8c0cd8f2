//! The engine, tried before it is relied on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use hotcell_domain::{ContainerSpec, ImageRef, Lifetime, Policy};
use hotcell_engine::{Embedded, EmbeddedConfig, Enforced, Enforcement, Engine, EngineError};

use crate::cli::{EngineChoice, ServeArgs};
use crate::id::new_container_id;

/// Opens the engine and makes sure that it works, by making a container and removing it.
pub(super) async fn open(arguments: &ServeArgs, state: &Path) -> Result<Arc<dyn Engine>> {
    match arguments.engine {
        EngineChoice::Auto | EngineChoice::Embedded => open_embedded(arguments, state).await,
    }
}

async fn open_embedded(arguments: &ServeArgs, state: &Path) -> Result<Arc<dyn Engine>> {
    let config = EmbeddedConfig {
        home: state.join("run"),
        launcher: PathBuf::from("/proc/self/exe"),
        agent: hotcell_agent_image::AGENT,
        cgroups: true,
        require_limits: arguments.require_limits,
    };
    let engine = Embedded::open(config).map_err(advise)?;
    if let Err(error) = engine.sweep().await {
        tracing::warn!(%error, "what an earlier run left stays");
    }
    warn_of(probe(&engine).await?);
    Ok(Arc::new(engine))
}

async fn probe(engine: &Embedded) -> Result<Enforced> {
    let mut spec = ContainerSpec::new(ImageRef::Host);
    spec.lifetime = Lifetime::WithOwner;
    let spec = Policy::default().admit(spec)?;
    let id = new_container_id()?;
    let container = engine.create(&id, &spec).await.map_err(advise)?;
    engine.destroy(&id).await.map_err(advise)?;
    Ok(container.enforced)
}

/// A limit that does not hold is never silently absent.
fn warn_of(enforced: Enforced) {
    for (limit, enforcement) in [
        ("memory", enforced.memory),
        ("cpus", enforced.cpus),
        ("pids", enforced.pids),
    ] {
        match enforcement {
            Enforcement::Cgroup => {}
            Enforcement::Rlimit => tracing::warn!(limit, "this host limits it per process only"),
            Enforcement::None => tracing::warn!(limit, "this host does not limit it"),
        }
    }
}

fn advise(error: EngineError) -> anyhow::Error {
    let advice =
        "containers cannot be made here; `hotcell doctor` tells what is missing and how to mend it";
    anyhow::Error::new(error).context(advice)
}
