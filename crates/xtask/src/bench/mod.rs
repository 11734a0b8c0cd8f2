//! Ours beside the floor and beside Docker, interleaved in one run.
//!
//! Machines are noisy, so every figure is taken in rounds: each round measures each
//! subject once, and what is compared was measured side by side.

mod client;
mod docker;
mod engines;
mod ground;
mod images;
mod memory;
mod ours;
mod samples;
mod server;
mod warm;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::docker::Docker;

/// Rounds of the quick subjects.
const ROUNDS: usize = 200;

/// Docker is measured in every so many rounds: it takes a third of a second.
const DOCKER_EVERY: usize = 20;

/// Runs the benchmark of the embedded engine, of the server on it, of the server on Docker, of
/// pulls, or all, and prints a table for each.
pub(crate) fn run(areas: &[String]) -> Result<()> {
    if areas == ["images"] {
        return images::run();
    }
    let docker = Docker::start().context("start Docker")?;
    if docker.is_none() {
        eprintln!("docker is not installed (or we are not root): compared with the floor only");
    }
    let areas: Vec<&str> = areas.iter().map(String::as_str).collect();
    match areas[..] {
        [] => {
            ground::run(docker.as_ref())?;
            server::run(docker.as_ref())?;
            engines::run(docker.as_ref())?;
            images::run()
        }
        ["ground"] => ground::run(docker.as_ref()),
        ["server"] => server::run(docker.as_ref()),
        ["engines"] => engines::run(docker.as_ref()),
        _ => bail!("usage: bench [ground | server | engines | images]"),
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
