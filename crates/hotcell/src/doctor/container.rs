//! The probe that counts: a real container.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hotcell_agent_client::{Agent, Command, EventKind};
use hotcell_domain::{ContainerId, ContainerSpec, ImageRef, Lifetime, Policy};
use hotcell_engine::{
    Embedded, EmbeddedConfig, Enforced, Enforcement, Engine, Garbage, SweepMode, fetch_and_create,
};

use super::Finding;
use crate::id::new_container_id;

/// Makes a container, runs a command in it and removes it.
pub(super) fn probe(state: &Path) -> Finding {
    match try_one(state) {
        Ok((time, enforced)) => Finding::good(
            "embedded engine",
            format!(
                "ran a command in a sealed container, in {} ms; {}",
                time.as_millis(),
                limits(enforced)
            ),
        ),
        Err(error) => Finding::bad(
            "embedded engine",
            format!("{error:#}"),
            "containers cannot be made here",
        )
        .fixed_by("mend what is marked ✗ above, from the top; if nothing is, name a state directory of your own with --state-dir"),
    }
}

fn try_one(state: &Path) -> Result<(Duration, Enforced)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    crate::state::prepare(state)?;
    let home = state.join("doctor");
    let engine = Embedded::open(EmbeddedConfig {
        home: home.clone(),
        launcher: PathBuf::from("/proc/self/exe"),
        agent: hotcell_agent_image::AGENT,
        cgroups: true,
        require_limits: false,
    })?;
    let outcome = runtime.block_on(async {
        engine.sweep(Garbage::Containers, SweepMode::Remove).await?;
        let start = Instant::now();
        let id = new_container_id()?;
        let mut spec = ContainerSpec::new(ImageRef::Host);
        spec.lifetime = Lifetime::WithOwner;
        let spec = Policy::default().admit(spec)?;
        let container = fetch_and_create(&engine, &id, &spec).await?;
        let ran = run_true(&engine, &id).await;
        engine.destroy(&id).await?;
        ran?;
        Ok((start.elapsed(), container.enforced))
    });
    // Only what is empty goes; a doctor that runs at the same time keeps its own.
    let _ = std::fs::remove_dir(home.join("containers"));
    let _ = std::fs::remove_dir(home);
    outcome
}

async fn run_true(engine: &Embedded, id: &ContainerId) -> Result<()> {
    let agent = Agent::connect(engine.open(id).await?).await?;
    let mut follow = agent.start("doctor", &Command::new(["true"])).await?;
    while let Some(event) = follow.next().await? {
        if let EventKind::Exit(exit) = event.kind {
            ensure!(
                exit.code == Some(0),
                "`true` failed in the container: {exit:?}"
            );
        }
    }
    Ok(())
}

fn limits(enforced: Enforced) -> String {
    let word = |kind| match kind {
        Enforcement::Cgroup => "limited",
        Enforcement::Rlimit => "limited per process",
        Enforcement::None => "not limited",
    };
    format!(
        "memory {}, processor time {}, processes {}",
        word(enforced.memory),
        word(enforced.cpus),
        word(enforced.pids)
    )
}
