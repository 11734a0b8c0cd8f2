//! How much one server carries for long: thousands of idle containers, hundreds of clients that stay connected, and
//! execs without end. What a server holds must not grow with what it has done. For root there are 4,094 ranges of user ids,
//! and so no more containers of the embedded engine.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::client::Client;
use super::report::Report;
use super::server::{exec_true, spawn};
use super::server_process::{Held, Server};

const CONTAINERS: usize = 4000;
const CLIENTS: usize = 500;

/// Containers in which execs run, one after the other in each.
const BUSY: usize = 16;

/// Execs until everything that is made once has been made, and as many rows are kept as may be.
const WARM_UP: usize = 2000;

/// The kept rows of ended execs, well below what the warm-up makes.
const ENDED_EXECS: &str = "500";

/// How long execs run without `--minutes`.
pub(super) const MINUTES: u64 = 1;

/// What a server may hold more after the execs than after the warm-up. Allocators keep what they had at the busiest moment.
const GROWTH_MAX: f64 = 1.15;

/// What idle containers and clients may cost the server, each.
const BYTES_EACH_CONTAINER_MAX: u64 = 80 << 10;
const BYTES_EACH_CLIENT_MAX: u64 = 128 << 10;

/// Threads do not depend on the number of containers or clients.
const THREADS_MAX: u64 = 128;

const ARGUMENTS: [&str; 20] = [
    "--warm",
    "0",
    "--containers-max",
    "4100",
    "--spawns-per-minute",
    "1000000",
    "--memory",
    "64m",
    "--memory-total",
    "400g",
    "--pids",
    "64",
    "--pids-total",
    "400000",
    "--disk",
    "16m",
    "--disk-bytes-max",
    "1t",
    "--ended-execs-max",
    ENDED_EXECS,
];

pub(super) fn run(program: &Path, minutes: u64, report: &Report) -> Result<()> {
    let server = Server::start_with(program, &ARGUMENTS, &[])?;
    let mut client = server.client()?;
    let empty = server.held()?;
    eprintln!("| | memory | threads | descriptors |\n|---|---|---|---|");
    row("a server that does nothing", empty);
    let containers = containers(&mut client)?;
    let full = server.held()?;
    row(&format!("{CONTAINERS} idle containers"), full);
    bounded(
        report,
        "an idle container costs the server",
        full.bytes.saturating_sub(empty.bytes) / CONTAINERS as u64,
        BYTES_EACH_CONTAINER_MAX,
    );
    let clients = clients(&server)?;
    let connected = server.held()?;
    row(&format!("and {CLIENTS} connected clients"), connected);
    bounded(
        report,
        "a connected client costs the server",
        connected.bytes.saturating_sub(full.bytes) / CLIENTS as u64,
        BYTES_EACH_CLIENT_MAX,
    );
    soak(&server, &containers[..BUSY], minutes, report)?;
    drop(clients);
    // The server has closed the first connection, which was idle for long.
    let mut client = server.client()?;
    for container in &containers {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    row("without containers and clients again", server.held()?);
    Ok(())
}

fn row(what: &str, held: Held) {
    eprintln!(
        "| {what} | {} KiB | {} | {} |",
        held.bytes >> 10,
        held.threads,
        held.descriptors
    );
}

fn bounded(report: &Report, what: &str, bytes: u64, bytes_max: u64) {
    report.verdict(
        bytes <= bytes_max,
        &format!("{what} {} KiB, at most {}", bytes >> 10, bytes_max >> 10),
    );
}

fn containers(client: &mut Client) -> Result<Vec<String>> {
    let start = Instant::now();
    let mut all = Vec::new();
    while all.len() < CONTAINERS {
        all.push(spawn(client).with_context(|| format!("spawn number {}", all.len()))?);
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{CONTAINERS} containers were made in {seconds:.0} s");
    Ok(all)
}

/// Clients with a session each. All of them have asked for something.
fn clients(server: &Server) -> Result<Vec<Client>> {
    let mut all = Vec::new();
    while all.len() < CLIENTS {
        let mut client = server
            .client()
            .with_context(|| format!("client number {}", all.len()))?;
        client.request("tools/list", &json!({}))?;
        all.push(client);
    }
    Ok(all)
}

/// Runs execs for minutes and compares what the server holds at the end with what it held after the first ones.
fn soak(server: &Server, containers: &[String], minutes: u64, report: &Report) -> Result<()> {
    execs(server, containers, |done| done < WARM_UP)?;
    let before = server.held()?;
    row(&format!("after {WARM_UP} execs"), before);
    let deadline = Instant::now() + Duration::from_mins(minutes);
    let done = execs(server, containers, |_| Instant::now() < deadline)?;
    let after = server.held()?;
    row(&format!("after {done} more in {minutes} min"), after);
    for (what, before, after) in [
        ("memory", before.bytes, after.bytes),
        ("threads", before.threads, after.threads),
        ("descriptors", before.descriptors, after.descriptors),
    ] {
        let growth = ratio(after, before);
        report.verdict(
            growth <= GROWTH_MAX,
            &format!("{what} after {done} execs: {growth:.2} x, at most {GROWTH_MAX} x"),
        );
    }
    report.verdict(
        after.threads <= THREADS_MAX,
        &format!("{} threads, at most {THREADS_MAX}", after.threads),
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
fn ratio(after: u64, before: u64) -> f64 {
    after as f64 / before.max(1) as f64
}

/// Runs execs in all containers at once for as long as the number of those that are done may be followed by more.
fn execs(
    server: &Server,
    containers: &[String],
    goes_on: impl Fn(usize) -> bool + Sync,
) -> Result<usize> {
    std::thread::scope(|scope| {
        let callers: Vec<_> = containers
            .iter()
            .map(|container| {
                let goes_on = &goes_on;
                scope.spawn(move || -> Result<usize> {
                    let (mut client, mut done) = (server.client()?, 0);
                    while goes_on(done * BUSY) {
                        exec_true(&mut client, container)?;
                        done += 1;
                    }
                    Ok(done)
                })
            })
            .collect();
        let counts = callers.into_iter().map(|caller| match caller.join() {
            Ok(count) => count,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        counts.sum()
    })
}
