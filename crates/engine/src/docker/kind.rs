//! Finds, opens and diagnoses Docker and Podman.

use std::sync::Arc;

use async_trait::async_trait;

use super::Docker;
use super::config::{DockerConfig, Flavor};
use super::find::{ReachableEngine, find};
use super::probe::About;
use super::scope::{known_scope, scope};
use crate::kind::{ASK_DOCTOR, sweep};
use crate::{
    Diagnosis, Enforcement, Engine, EngineError, EngineKind, EngineMissing, EngineSetup, EngineView,
};

/// The file in the state directory that lists the images that we pulled: only these are removed.
const PULLED_FILE: &str = "pulled-images.json";

/// The entry of Docker or Podman in the list of engines.
#[derive(Debug)]
pub(crate) struct DockerKind(pub(crate) Flavor);

#[async_trait]
impl EngineKind for DockerKind {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn title(&self) -> &'static str {
        match self.0 {
            Flavor::Docker => "Docker",
            Flavor::Podman => "Podman",
        }
    }

    fn summary(&self) -> &'static str {
        match self.0 {
            Flavor::Docker => "Docker, at `DOCKER_HOST` or its usual socket",
            Flavor::Podman => "Podman, at `CONTAINER_HOST` or its usual socket",
        }
    }

    fn default_image(&self) -> &'static str {
        "python:3.12-slim"
    }

    /// Does not create a container to test the engine: that would require an image.
    async fn open(&self, setup: &EngineSetup) -> Result<Arc<dyn Engine>, EngineMissing> {
        let found = self.find(setup).await?;
        refuse_unknown_runtime(setup, &found.about)?;
        tracing::info!(
            engine = self.name(),
            version = found.about.version,
            host = %found.host,
            "using an engine"
        );
        match open(self.0, found, setup).await {
            Ok(engine) => Ok(Arc::new(engine)),
            Err(error) => Err(EngineMissing::new(&error, ASK_DOCTOR)),
        }
    }

    async fn look(&self, setup: &EngineSetup) -> Result<EngineView, EngineMissing> {
        let missing = |error: EngineError| EngineMissing::new(&error, ASK_DOCTOR);
        let Some(scope) = known_scope(&setup.state).map_err(missing)? else {
            return Err(EngineMissing {
                reason: "no server of this state directory ever used it".to_owned(),
                fix: "nothing has to be done".to_owned(),
            });
        };
        let found = self.find(setup).await?;
        let engine = Docker::new(config(self.0, found, setup, scope));
        Ok(EngineView {
            identity: engine.identity(),
            containers: engine.list().await.map_err(missing)?,
            workspaces_unowned: Vec::new(),
        })
    }

    async fn diagnose(&self, setup: &EngineSetup) -> Diagnosis {
        match self.find(setup).await {
            Ok(found) => describe(&found),
            Err(missing) => {
                let fix = format!("if you want it as an engine: {}", missing.fix);
                let missing = EngineMissing { fix, ..missing };
                let follows = "not available as an engine (the embedded one does not need it)";
                Diagnosis::missing(missing, follows)
            }
        }
    }
}

impl DockerKind {
    async fn find(&self, setup: &EngineSetup) -> Result<ReachableEngine, EngineMissing> {
        find(self.0, setup).await.map_err(|absent| EngineMissing {
            reason: absent.to_string(),
            fix: absent.fix(self.0).to_owned(),
        })
    }
}

fn refuse_unknown_runtime(setup: &EngineSetup, about: &About) -> Result<(), EngineMissing> {
    let known = &about.runtimes;
    match &setup.runtime {
        Some(name) if !known.is_empty() && !known.contains(name) => Err(EngineMissing {
            reason: format!(
                "it does not know the runtime {name}, only {}",
                known.join(", ")
            ),
            fix: "name one of those, or register it there".to_owned(),
        }),
        _ => Ok(()),
    }
}

async fn open(
    flavor: Flavor,
    found: ReachableEngine,
    setup: &EngineSetup,
) -> Result<Docker, EngineError> {
    let prepared = (setup.prepare_state)(&setup.state);
    prepared.map_err(EngineError::engine("use the state directory"))?;
    let engine = Docker::new(config(flavor, found, setup, scope(&setup.state)?));
    let engine = engine
        .with_record(setup.state.join(PULLED_FILE))
        .with_credentials(setup.credentials.clone());
    sweep(&engine).await;
    engine.capabilities().await?;
    Ok(engine)
}

fn config(
    flavor: Flavor,
    found: ReachableEngine,
    setup: &EngineSetup,
    scope: String,
) -> DockerConfig {
    DockerConfig {
        flavor,
        host: found.host,
        runtime: setup.runtime.clone(),
        scope,
        agent: setup.agent,
        require_limits: setup.require_limits,
    }
}

fn describe(found: &ReachableEngine) -> Diagnosis {
    let told = Diagnosis::good(tell(found));
    let lacks = lacks(&found.about);
    if lacks.is_empty() {
        return told;
    }
    let fix = "delegate cgroups to it: `systemctl edit user@.service`, `[Service]`, `Delegate=cpu memory pids`, and log in again";
    Diagnosis {
        follows: Some(format!("its containers have no {}", lacks.join(", no "))),
        fix: found.about.is_rootless.then(|| fix.to_owned()),
        ..told
    }
}

fn tell(found: &ReachableEngine) -> String {
    let about = &found.about;
    let who = if about.is_rootless {
        "rootless"
    } else {
        "as root"
    };
    let runtimes = match &about.runtimes[..] {
        [] => about.default_runtime.clone(),
        names => names.join(", "),
    };
    format!(
        "{} (API {}) at {}, {who}, cgroup v{}, runtimes {runtimes}",
        about.version, about.api_version, found.host, about.cgroup_version
    )
}

/// Parts of the container profile that this engine does not support.
fn lacks(about: &About) -> Vec<&'static str> {
    let enforced = about.enforced;
    [
        ("memory limit", enforced.memory == Enforcement::Cgroup),
        ("cpu limit", enforced.cpus == Enforcement::Cgroup),
        ("pids limit", enforced.pids == Enforcement::Cgroup),
        ("seccomp filter but ours", about.has_seccomp),
    ]
    .into_iter()
    .filter_map(|(what, is_there)| (!is_there).then_some(what))
    .collect()
}
