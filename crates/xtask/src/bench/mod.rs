//! Ours beside the floor and beside Docker, interleaved in one run.
//!
//! Machines are noisy, so every figure is taken in rounds: each round measures each
//! subject once, and what is compared was measured side by side.

mod docker;
mod memory;
mod ours;
mod samples;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::docker::Docker;
use self::ours::{Cgroups, Ours};
use self::samples::{Samples, rows};

/// Rounds of the quick subjects.
const ROUNDS: usize = 200;

/// Docker is measured in every so many rounds: it takes a third of a second.
const DOCKER_EVERY: usize = 20;

/// Containers that must live at once.
const IDLE_CONTAINERS: usize = 200;

/// Runs every benchmark and prints one table.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    runtime.block_on(async {
        let docker = Docker::start().context("start Docker")?;
        if docker.is_none() {
            eprintln!("docker is not installed (or we are not root): compared with the floor only");
        }
        let ours = Ours::open()?;
        let outcome = measure(&ours, docker.as_ref()).await;
        ours.close().await?;
        outcome
    })
}

async fn measure(ours: &Ours, docker: Option<&Docker>) -> Result<()> {
    let mut samples = Samples::default();
    let live = ours.live().await?;
    for round in 0..ROUNDS {
        samples.add(rows::FLOOR, timed(floor)?);
        samples.add(rows::READY, ours.create_ready(Cgroups::Used).await?);
        samples.add(rows::READY_BARE, ours.create_ready(Cgroups::Left).await?);
        samples.add(rows::LIFE, ours.whole_life(Cgroups::Used).await?);
        samples.add(rows::LIFE_BARE, ours.whole_life(Cgroups::Left).await?);
        samples.add(rows::EXEC, ours.exec_true(&live).await?);
        samples.add(rows::WRITE, ours.write(&live).await?);
        samples.add(rows::READ, ours.read(&live).await?);
        if let Some(docker) = docker
            && round % DOCKER_EVERY == 0
        {
            samples.add(rows::DOCKER_RUN, timed(|| docker.run_true())?);
            samples.add(rows::DOCKER_RUN_ALONE, timed(|| docker.run_true_alone())?);
            samples.add(rows::DOCKER_EXEC, timed(|| docker.exec_true())?);
        }
    }
    samples.print();
    ours.stream(&live).await?;
    ours.idle(IDLE_CONTAINERS).await
}

/// What the same command costs without any container.
fn floor() -> Result<()> {
    // Asking for the user that we are makes std fork and exec instead of posix_spawn.
    let us = rustix::process::getuid().as_raw();
    let status = Command::new("/bin/true")
        .uid(us)
        .status()
        .context("run true")?;
    ensure!(status.success(), "true failed");
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
