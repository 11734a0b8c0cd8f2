//! The embedded engine, called directly, compared with fork and exec and with Docker.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::docker::Docker;
use super::engine_calls::{Cgroups, EngineCalls};
use super::readme::{Readme, p50, shown};
use super::report::Report;
use super::samples::Samples;
use super::{DOCKER_EVERY, ROUNDS, timed};

/// Containers that are kept alive at the same time.
const IDLE_CONTAINERS: usize = 200;

const FLOOR: &str = "fork+exec true";
const READY: &str = "create + agent ready";
const READY_BARE: &str = "create + agent ready, without cgroups";
const LIFE: &str = "create + true + destroy";
const LIFE_BARE: &str = "create + true + destroy, without cgroups";
const EXEC: &str = "exec true in a live container";
const WRITE: &str = "write 1 KB";
const READ: &str = "read 1 KB";
const DOCKER_RUN: &str = "docker run true";
const DOCKER_RUN_ALONE: &str = "docker run --network=none true";
const DOCKER_EXEC: &str = "docker exec true";

pub(super) fn run(docker: Option<&Docker>, report: &Report, readme: &mut Readme) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    runtime.block_on(async {
        let calls = EngineCalls::open()?;
        let outcome = measure(&calls, docker, report, readme).await;
        calls.close().await?;
        outcome
    })
}

async fn measure(
    calls: &EngineCalls,
    docker: Option<&Docker>,
    report: &Report,
    readme: &mut Readme,
) -> Result<()> {
    let mut samples = Samples::default();
    let live = calls.live().await?;
    for round in 0..ROUNDS {
        samples.add(FLOOR, timed(floor)?);
        samples.add(READY, calls.create_ready(Cgroups::Used).await?);
        samples.add(READY_BARE, calls.create_ready(Cgroups::Unused).await?);
        samples.add(LIFE, calls.whole_life(Cgroups::Used).await?);
        samples.add(LIFE_BARE, calls.whole_life(Cgroups::Unused).await?);
        samples.add(EXEC, calls.exec_true(&live).await?);
        samples.add(WRITE, calls.write(&live).await?);
        samples.add(READ, calls.read(&live).await?);
        if let Some(docker) = docker
            && round % DOCKER_EVERY == 0
        {
            samples.add(DOCKER_RUN, timed(|| docker.run_true())?);
            samples.add(DOCKER_RUN_ALONE, timed(|| docker.run_true_alone())?);
            samples.add(DOCKER_EXEC, timed(|| docker.exec_true())?);
        }
    }
    samples.print();
    promises(&samples, report);
    table(&samples, readme);
    let streamed = calls.stream(&live, report).await?;
    readme.row("1 GiB of stdout", &streamed, "");
    let made = calls.idle(IDLE_CONTAINERS, report).await?;
    readme.row(
        &format!("{IDLE_CONTAINERS} containers at once"),
        &format!("made in {}", shown(made)),
        "",
    );
    Ok(())
}

fn table(samples: &Samples, readme: &mut Readme) {
    let of = |row| p50(samples, row);
    readme.table();
    readme.row(
        "create a container, agent ready",
        &format!("{} ({} without cgroups)", of(READY), of(READY_BARE)),
        "",
    );
    readme.row(
        "create + `true` + destroy",
        &of(LIFE),
        &format!("fork+exec {}; `docker run` {}", of(FLOOR), of(DOCKER_RUN)),
    );
    readme.row(
        "`true` in a live container",
        &of(EXEC),
        &format!("`docker exec` {}", of(DOCKER_EXEC)),
    );
    readme.row(
        "read, replace a file of 1 KB",
        &format!("{}, {}", of(READ), of(WRITE)),
        "",
    );
}

fn promises(samples: &Samples, report: &Report) {
    samples.within(report, READY, 8.0);
    samples.within(report, READY_BARE, 8.0);
    samples.at_most_times(report, LIFE, 8.0, FLOOR);
    samples.at_most_times(report, LIFE_BARE, 8.0, FLOOR);
    samples.times_faster(report, LIFE, 40.0, DOCKER_RUN);
    samples.times_faster(report, LIFE_BARE, 40.0, DOCKER_RUN);
    samples.within(report, EXEC, 2.0);
    samples.times_faster(report, EXEC, 30.0, DOCKER_EXEC);
    samples.within(report, WRITE, 0.5);
    samples.within(report, READ, 0.5);
}

/// The floor: the same command without a container.
pub(super) fn floor() -> Result<()> {
    // Setting the uid, even to our own, makes std use fork and exec instead of posix_spawn.
    let us = rustix::process::getuid().as_raw();
    let status = Command::new("/bin/true")
        .uid(us)
        .status()
        .context("run true")?;
    ensure!(status.success(), "true failed");
    Ok(())
}
