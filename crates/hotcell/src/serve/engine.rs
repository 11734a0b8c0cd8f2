//! The engine, tried before it is relied on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use hotcell_domain::{ContainerSpec, ImageRef, Lifetime, Policy};
use hotcell_engine::docker::{DockerConfig, Flavor};
use hotcell_engine::{
    Docker, Embedded, EmbeddedConfig, Engine, Garbage, SweepMode, fetch_and_create,
};

use crate::cli::{EngineChoice, ServeArgs};
use crate::engines::{ChosenEngine, EMBEDDED_WORKS, ReachableEngine, choose, find};
use crate::id::new_container_id;
use crate::image;

/// The file in the state directory that says whose containers in Docker or Podman are ours.
const SCOPE_FILE: &str = "scope";

/// The file in the state directory that says which images Docker or Podman pulled for us.
const PULLED_FILE: &str = "pulled-images.json";

/// Opens the engine and makes sure that it works.
pub(super) async fn open(arguments: &ServeArgs, state: &Path) -> Result<Arc<dyn Engine>> {
    match arguments.engine {
        EngineChoice::Auto => open_any(arguments, state).await,
        EngineChoice::Embedded => match foreign_runtime(arguments) {
            Some(refusal) => {
                let way = "leave --runtime out, or say --engine docker";
                Err(anyhow!(
                    "the embedded engine cannot be used: {refusal}; {way}"
                ))
            }
            None => open_embedded(arguments, state).await.map_err(advise),
        },
        EngineChoice::Docker => open_named(arguments, state, Flavor::Docker).await,
        EngineChoice::Podman => open_named(arguments, state, Flavor::Podman).await,
    }
}

/// The embedded engine if it works, else what else answers.
async fn open_any(arguments: &ServeArgs, state: &Path) -> Result<Arc<dyn Engine>> {
    let embedded = match foreign_runtime(arguments) {
        Some(refusal) => Err(refusal),
        None => open_embedded(arguments, state)
            .await
            .map_err(|error| format!("{error:#}")),
    };
    let broken = match embedded {
        Ok(engine) => {
            tracing::info!(
                engine = "embedded",
                reason = EMBEDDED_WORKS,
                "chose an engine"
            );
            return Ok(engine);
        }
        Err(why) => why,
    };
    let find = |flavor| find(flavor, &arguments.access);
    let (docker, podman) = tokio::join!(find(Flavor::Docker), find(Flavor::Podman));
    let choice = choose(Err(broken), docker, podman).map_err(|none| advise(none.into()))?;
    tracing::info!(engine = choice.chosen.name(), reason = %choice.reason, "chose an engine");
    match choice.chosen {
        ChosenEngine::Embedded => open_embedded(arguments, state).await.map_err(advise),
        ChosenEngine::Api(flavor, found) => open_api(arguments, state, flavor, *found).await,
    }
}

/// Why the embedded engine is not what was asked for, if it is not.
fn foreign_runtime(arguments: &ServeArgs) -> Option<String> {
    let name = arguments.runtime.as_ref()?;
    Some(format!(
        "it has no OCI runtimes, and --runtime {name} asks for one: that is for Docker and Podman"
    ))
}

async fn open_named(
    arguments: &ServeArgs,
    state: &Path,
    flavor: Flavor,
) -> Result<Arc<dyn Engine>> {
    let found = find(flavor, &arguments.access).await.map_err(|absent| {
        let (name, fix) = (flavor.name(), absent.fix(flavor));
        anyhow!("{name} cannot be used: {absent}; {fix}")
    })?;
    open_api(arguments, state, flavor, found).await
}

/// Docker or Podman. No container is made to try it: that takes an image.
async fn open_api(
    arguments: &ServeArgs,
    state: &Path,
    flavor: Flavor,
    found: ReachableEngine,
) -> Result<Arc<dyn Engine>> {
    let known = &found.about.runtimes;
    if let Some(name) = &arguments.runtime
        && !known.is_empty()
        && !known.contains(name)
    {
        let (flavor, known) = (flavor.name(), known.join(", "));
        bail!(
            "{flavor} does not know the runtime {name}; it has {known}: name one of those, or register it there"
        );
    }
    tracing::info!(
        engine = flavor.name(),
        version = found.about.version,
        host = %found.host,
        "using an engine"
    );
    let engine = Docker::new(DockerConfig {
        flavor,
        host: found.host,
        runtime: arguments.runtime.clone(),
        scope: scope(state)?,
        agent: hotcell_agent_image::AGENT,
        require_limits: arguments.require_limits,
    });
    let engine = engine.with_record(state.join(PULLED_FILE));
    sweep(&engine).await;
    engine.capabilities().await?;
    Ok(Arc::new(engine))
}

/// Who we are to an engine that others use too, the same for as long as the state is there.
fn scope(state: &Path) -> Result<String> {
    let path = state.join(SCOPE_FILE);
    let known = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        known => known.with_context(|| format!("read {}", path.display()))?,
    };
    if !known.is_empty() {
        return Ok(known);
    }
    let scope = new_container_id()?.to_string();
    let new = state.join(format!("{SCOPE_FILE}.new"));
    // Without it, a power cut would cost whatever the engine holds for us.
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(scope.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(state)?.sync_all()
    };
    write().with_context(|| format!("write {}", path.display()))?;
    Ok(scope)
}

async fn open_embedded(arguments: &ServeArgs, state: &Path) -> Result<Arc<dyn Engine>> {
    let config = EmbeddedConfig {
        home: state.join("run"),
        launcher: PathBuf::from("/proc/self/exe"),
        agent: hotcell_agent_image::AGENT,
        cgroups: true,
        require_limits: arguments.require_limits,
    };
    let engine = Embedded::open(config)?;
    let engine = engine.with_images(image::open(&arguments.state)?);
    sweep(&engine).await;
    probe(&engine).await?;
    Ok(Arc::new(engine))
}

async fn sweep(engine: &dyn Engine) {
    if let Err(error) = engine.sweep(Garbage::Containers, SweepMode::Remove).await {
        tracing::warn!(%error, "could not remove leftovers of an earlier run");
    }
}

/// Makes a container and removes it.
async fn probe(engine: &Embedded) -> Result<()> {
    let mut spec = ContainerSpec::new(ImageRef::Host);
    spec.lifetime = Lifetime::WithOwner;
    let spec = Policy::default().admit(spec)?;
    let id = new_container_id()?;
    fetch_and_create(engine, &id, &spec).await?;
    Ok(engine.destroy(&id).await?)
}

#[expect(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
fn advise(error: anyhow::Error) -> anyhow::Error {
    anyhow!("{error:#}; `hotcell doctor` tells what is missing and how to mend it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_stays_the_same_for_one_state_and_differs_between_two() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let first = scope(here.path()).expect("a scope");
        assert_eq!(scope(here.path()).expect("a scope"), first);
        assert_ne!(scope(there.path()).expect("a scope"), first);
    }
}
