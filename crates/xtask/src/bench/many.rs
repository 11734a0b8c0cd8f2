//! Many idle containers: the memory of each, and whether they make an exec slower.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use super::client::Client;
use super::embedded::floor;
use super::memory::{agents, available_bytes, private_bytes};
use super::readme::Readme;
use super::report::Report;
use super::samples::Samples;
use super::server::{exec_true, spawn};
use super::server_process::Server;
use super::timed;

const CONTAINERS: usize = 2000;
const ROUNDS: usize = 300;

const FLOOR_AT_ONE: &str = "fork+exec true, beside 1 container";
const EXEC_AT_ONE: &str = "exec_start true, beside 1 container";
const FLOOR_AT_MANY: &str = "fork+exec true, beside 2,000 containers";
const EXEC_AT_MANY: &str = "exec_start true, beside 2,000 containers";

/// Private memory of an agent, plus the server's memory for its container.
const BYTES_EACH_MAX: u64 = 1_153_434;

/// How much longer an exec may take, relative to the floor at the same time.
const SLOWER_MAX: f64 = 1.15;

/// Quotas and total limits that fit all containers, and no warm pool.
pub(super) const ARGUMENTS: [&str; 16] = [
    "--warm",
    "0",
    "--containers-max",
    "2100",
    "--memory",
    "64m",
    "--memory-total",
    "160g",
    "--pids",
    "64",
    "--pids-total",
    "160000",
    "--disk",
    "64m",
    "--disk-bytes-max",
    "200g",
];

pub(super) fn run(program: &Path, report: &Report, readme: &mut Readme) -> Result<()> {
    let server = Server::start_with(program, &ARGUMENTS, &[])?;
    let mut client = server.client()?;
    let mut samples = Samples::default();
    let first = spawn(&mut client)?;
    execs(
        &mut client,
        &first,
        &mut samples,
        [FLOOR_AT_ONE, EXEC_AT_ONE],
    )?;
    let (available, anonymous) = (available_bytes()?, server.anonymous_bytes()?);
    let start = Instant::now();
    let mut all = vec![first.clone()];
    while all.len() < CONTAINERS {
        all.push(spawn(&mut client).with_context(|| format!("spawn number {}", all.len()))?);
    }
    let made = start.elapsed();
    let taken = available.saturating_sub(available_bytes()?);
    let server_bytes = server.anonymous_bytes()?.saturating_sub(anonymous);
    let agent_bytes: u64 = agents(&all)?.into_iter().flat_map(private_bytes).sum();
    let each = (agent_bytes + server_bytes) / CONTAINERS as u64;
    execs(
        &mut client,
        &first,
        &mut samples,
        [FLOOR_AT_MANY, EXEC_AT_MANY],
    )?;
    for container in &all {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    samples.print();
    report.verdict(
        each <= BYTES_EACH_MAX,
        &format!(
            "each idle container: {} KiB, at most {} ({CONTAINERS} made in {:.1} s; the host has {} KiB less for each)",
            each >> 10,
            BYTES_EACH_MAX >> 10,
            made.as_secs_f64(),
            (taken / CONTAINERS as u64) >> 10,
        ),
    );
    slower(&samples, report);
    readme.table();
    readme.row(
        "2,000 idle containers",
        &format!(
            "{:.2} MiB each, made in {:.0} s",
            f64::from(u32::try_from(each >> 10)?) / 1024.0,
            made.as_secs_f64()
        ),
        "",
    );
    Ok(())
}

fn execs(
    client: &mut Client,
    container: &str,
    samples: &mut Samples,
    [floor_row, exec_row]: [&'static str; 2],
) -> Result<()> {
    for _ in 0..ROUNDS {
        samples.add(floor_row, timed(floor)?);
        samples.add(exec_row, timed(|| exec_true(client, container))?);
    }
    Ok(())
}

/// Compares both, relative to what fork and exec took at the same time.
fn slower(samples: &Samples, report: &Report) {
    let one = samples.ratio(EXEC_AT_ONE, FLOOR_AT_ONE);
    let many = samples.ratio(EXEC_AT_MANY, FLOOR_AT_MANY);
    let Some((one, many)) = one.zip(many) else {
        return report.unmeasured(EXEC_AT_MANY);
    };
    let slower = many / one;
    report.verdict(
        slower <= SLOWER_MAX,
        &format!("{EXEC_AT_MANY}: {slower:.2} x beside 1, at most {SLOWER_MAX} x"),
    );
}
