//! Opens the embedded engine, and tests whether it works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hotcell_agent_client::{Agent, Command, EventKind};
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, ImageRef, Lifetime, Policy};
use hotcell_image::Images;

use super::{Embedded, EmbeddedConfig, NAME};
use crate::kind::{ASK_DOCTOR, sweep};
use crate::new_id::new_container_id;
use crate::{
    Diagnosis, Enforced, Enforcement, Engine, EngineError, EngineKind, EngineMissing, EngineSetup,
    EngineView, Garbage, SweepMode, fetch_and_create,
};

/// The entry of the embedded engine in the list.
#[derive(Debug)]
pub(crate) struct EmbeddedKind;

#[async_trait]
impl EngineKind for EmbeddedKind {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "embedded engine"
    }

    fn summary(&self) -> &'static str {
        "Namespaces, cgroups and seccomp, without a daemon"
    }

    fn default_image(&self) -> &'static str {
        "host"
    }

    async fn open(&self, setup: &EngineSetup) -> Result<Arc<dyn Engine>, EngineMissing> {
        refuse_runtime(setup)?;
        match open(setup).await {
            Ok(engine) => Ok(Arc::new(engine)),
            Err(error) => Err(EngineMissing::new(&error, ASK_DOCTOR)),
        }
    }

    async fn look(&self, setup: &EngineSetup) -> Result<EngineView, EngineMissing> {
        let (home, tree) = homes(setup);
        let looked = tokio::task::spawn_blocking(move || super::look(&home, &tree)).await;
        let looked = looked.map_err(EngineError::engine("run the engine's work"));
        looked
            .and_then(|looked| looked)
            .map_err(|error| EngineMissing::new(&error, "see that its directories can be read"))
    }

    /// Creates a container, runs a command in it and removes it.
    async fn diagnose(&self, setup: &EngineSetup) -> Diagnosis {
        let home = setup.state.join("doctor");
        let tried = try_one(setup, home.clone()).await;
        // Removes only empty directories; a concurrent doctor keeps its own.
        let _ = std::fs::remove_file(home.join("tree/mapped.json"));
        for directory in ["containers", "ids", "tree", ""] {
            let _ = std::fs::remove_dir(home.join(directory));
        }
        match tried {
            Ok((time, enforced)) => Diagnosis::good(format!(
                "ran a command in a sealed container, in {} ms; {}",
                time.as_millis(),
                limits(enforced)
            )),
            Err(error) => {
                let fix = "fix what is marked ✗ above, from the top; if nothing is, name a state directory of your own with --state-dir";
                let missing = EngineMissing::new(&error, fix);
                Diagnosis::missing(missing, "containers cannot be made here")
            }
        }
    }
}

fn refuse_runtime(setup: &EngineSetup) -> Result<(), EngineMissing> {
    let Some(name) = &setup.runtime else {
        return Ok(());
    };
    Err(EngineMissing {
        reason: format!("it has no OCI runtimes, and --runtime {name} asks for one"),
        fix: "leave --runtime out, or name another engine".to_owned(),
    })
}

fn config(setup: &EngineSetup, home: PathBuf, tree: PathBuf) -> EmbeddedConfig {
    EmbeddedConfig {
        home,
        tree,
        launcher: setup.launcher.clone(),
        agent: setup.agent,
        cgroups: true,
        require_limits: setup.require_limits,
    }
}

/// The directories of containers and of workspaces in a state directory.
fn homes(setup: &EngineSetup) -> (PathBuf, PathBuf) {
    (setup.state.join("run"), setup.state.join("tree"))
}

fn prepare(setup: &EngineSetup) -> Result<(), EngineError> {
    let prepared = (setup.prepare_state)(&setup.state);
    prepared.map_err(EngineError::engine("use the state directory"))
}

async fn open(setup: &EngineSetup) -> Result<Embedded, EngineError> {
    prepare(setup)?;
    let (home, tree) = homes(setup);
    let engine = Embedded::open(config(setup, home, tree))?;
    let step = "open the images in the state directory";
    let images = Images::open(&setup.images).map_err(EngineError::engine(step))?;
    let engine = engine
        .with_images(images)
        .with_credentials(setup.credentials.clone());
    sweep(&engine).await;
    let (id, spec) = passing_container()?;
    fetch_and_create(&engine, &id, &spec).await?;
    engine.destroy(&id).await?;
    Ok(engine)
}

/// A container that only shows that one can be created.
fn passing_container() -> Result<(ContainerId, Admitted<ContainerSpec>), EngineError> {
    let mut spec = ContainerSpec::new(ImageRef::Host);
    spec.lifetime = Lifetime::WithOwner;
    let spec = Policy::default().admit(spec);
    let spec = spec.map_err(EngineError::engine("admit the host's files"))?;
    Ok((new_container_id()?, spec))
}

async fn try_one(setup: &EngineSetup, home: PathBuf) -> Result<(Duration, Enforced), EngineError> {
    prepare(setup)?;
    let tree = home.join("tree");
    let engine = Embedded::open(config(setup, home, tree))?;
    engine.sweep(Garbage::Containers, SweepMode::Remove).await?;
    let start = Instant::now();
    let (id, spec) = passing_container()?;
    let container = fetch_and_create(&engine, &id, &spec).await?;
    let ran = run_true(&engine, &id).await;
    engine.destroy(&id).await?;
    ran.map_err(EngineError::engine("run a command in the container"))?;
    Ok((start.elapsed(), container.enforced))
}

async fn run_true(
    engine: &Embedded,
    id: &ContainerId,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let agent = Agent::connect(engine.open(id).await?).await?;
    let mut follow = agent.start("doctor", &Command::new(["true"])).await?;
    while let Some(event) = follow.next().await? {
        if let EventKind::Exit(exit) = event.kind
            && exit.code != Some(0)
        {
            return Err(format!("`true` failed: {exit:?}").into());
        }
    }
    Ok(())
}

fn limits(enforced: Enforced) -> String {
    let word = |kind| match kind {
        Enforcement::Cgroup => "limited",
        Enforcement::ProjectQuota => "limited by project quotas",
        Enforcement::Watched => "watched",
        Enforcement::Rlimit => "limited per process",
        Enforcement::None => "not limited",
    };
    format!(
        "memory {}, processor time {}, processes {}, disk space {}",
        word(enforced.memory),
        word(enforced.cpus),
        word(enforced.pids),
        word(enforced.disk)
    )
}
