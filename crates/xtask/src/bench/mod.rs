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
mod report;
mod samples;
mod server;
mod store;
mod stream;
mod warm;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::docker::Docker;
use self::report::Report;

/// What can be measured alone.
const AREAS: [&str; 5] = ["ground", "server", "engines", "images", "store"];

/// Rounds of the quick subjects.
const ROUNDS: usize = 200;

/// Docker is measured in every so many rounds: it takes a third of a second.
const DOCKER_EVERY: usize = 20;

const USAGE: &str = "usage: bench [--check] [ground | server | engines | images | store]";

/// Runs the benchmark of the embedded engine, of the server on it, of the server on Docker, of
/// pulls, of the store, or all, and prints a table for each. With `--check` it fails if a bound was missed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let is_check = arguments.iter().any(|word| word == "--check");
    let areas = arguments.iter().filter(|word| *word != "--check");
    let areas: Vec<&str> = areas.map(String::as_str).collect();
    let report = Report::default();
    measure(&areas, &report)?;
    report.print();
    if is_check { report.check() } else { Ok(()) }
}

fn measure(areas: &[&str], report: &Report) -> Result<()> {
    let area = match areas {
        [] => None,
        [area] if AREAS.contains(area) => Some(*area),
        _ => bail!(USAGE),
    };
    if area == Some("images") {
        return images::run(report);
    }
    if area == Some("store") {
        return store::run(report);
    }
    let docker = Docker::start().context("start Docker")?;
    if docker.is_none() {
        eprintln!("docker is not installed (or we are not root): compared with the floor only");
    }
    let docker = docker.as_ref();
    let is_wanted = |name| area.is_none_or(|area| area == name);
    if is_wanted("ground") {
        ground::run(docker, report)?;
    }
    if is_wanted("server") {
        server::run(docker, report)?;
    }
    if is_wanted("engines") {
        engines::run(docker, report)?;
    }
    if is_wanted("images") {
        images::run(report)?;
    }
    if is_wanted("store") {
        store::run(report)?;
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_area_is_refused_before_anything_is_measured() {
        for words in [&["speed"][..], &["--chek"], &["ground", "server"]] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let said = run(&words).expect_err("it is unknown").to_string();
            assert_eq!(said, USAGE);
        }
    }
}
