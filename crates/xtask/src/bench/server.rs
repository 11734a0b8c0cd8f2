//! The whole server over Streamable HTTP on loopback, compared with Docker and with an older
//! binary.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::client::Client;
use super::compare::{self, Binaries};
use super::docker::Docker;
use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::Samples;
use super::server_process::Server;
use super::{DOCKER_EVERY, ROUNDS, stream, throughput, timed, warm};

const START: &str = "server start to first answer";
const SPAWN: &str = "spawn, cold";
const SPAWN_WARM: &str = "spawn, warm";
const EXEC: &str = "exec_start true, waited for";
const WRITE_1K: &str = "fs_write 1 KB";
const READ_1K: &str = "fs_read 1 KB";
const WRITE_1M: &str = "fs_write 1 MB";
const READ_1M: &str = "fs_read 1 MB";
const PING: &str = "ping";
const DOCKER_EXEC: &str = "docker exec true";

/// Number of starts that are measured.
const STARTS: usize = 11;

/// Anonymous memory of an idle server and its launcher. The rest of the resident memory is the
/// program itself, which the kernel can drop and read again.
const IDLE_ANONYMOUS_BYTES_MAX: u64 = 4 << 20;

/// One binary: its server and its measurements.
pub(super) struct Side {
    program: PathBuf,
    pub(super) server: Server,
    pub(super) samples: Samples,
    pub(super) streams_rss_bytes: u64,
}

impl Side {
    fn start(program: &Path) -> Result<Self> {
        let server = Server::start(program)?;
        warm::until_ready(&mut server.client()?)?;
        Ok(Self {
            program: program.to_owned(),
            server,
            samples: Samples::default(),
            streams_rss_bytes: 0,
        })
    }
}

pub(super) fn run(
    docker: Option<&Docker>,
    binaries: &Binaries,
    report: &Report,
    readme: &mut Readme,
) -> Result<()> {
    let sides = binaries.all().map(|program| Side::start(program));
    let mut sides = sides.collect::<Result<Vec<_>>>()?;
    let idle_bytes = sides[0].server.anonymous_bytes()?;
    let idle_rss_bytes = sides[0].server.rss_bytes()?;
    starts(&mut sides)?;
    calls(&mut sides, docker)?;
    throughput::run(&mut sides)?;
    for side in &mut sides {
        stream::run(&mut side.server.client()?, &mut side.samples)?;
    }
    let ours = &sides[0];
    ours.samples.print();
    bounds(&ours.samples, report);
    stream::bounds(&ours.samples, report);
    report.verdict(
        idle_bytes <= IDLE_ANONYMOUS_BYTES_MAX,
        &format!(
            "idle server with its launcher: {} KiB of anonymous memory, at most {} ({} KiB resident)",
            idle_bytes >> 10,
            IDLE_ANONYMOUS_BYTES_MAX >> 10,
            idle_rss_bytes >> 10,
        ),
    );
    table(&ours.samples, readme);
    throughput::bounds(ours, report, readme);
    #[expect(clippy::cast_precision_loss, reason = "a size to print")]
    let idle_mib = idle_bytes as f64 / f64::from(1 << 20);
    readme.row(
        "start to first answer; idle memory",
        &format!(
            "{}; {idle_mib:.1} MiB with the launcher, {} MiB with the program's own pages",
            p50(&ours.samples, START),
            idle_rss_bytes >> 20,
        ),
        "",
    );
    if let [ours, before] = &sides[..] {
        compare::verdicts(&ours.samples, &before.samples, report);
    }
    drop(sides);
    warm::run(&binaries.ours, report)
}

/// Starts a server and stops it again, on each side in turns.
fn starts(sides: &mut [Side]) -> Result<()> {
    for round in 0..STARTS {
        compare::in_turns(round, sides, |side| {
            let server = Server::start(&side.program)?;
            side.samples.add(START, server.start_time);
            drop(server);
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

/// One call after the other, each kind in each round.
fn calls(sides: &mut [Side], docker: Option<&Docker>) -> Result<()> {
    let mut clients = Vec::new();
    for side in &*sides {
        let mut client = side.server.client()?;
        let container = spawn(&mut client)?;
        clients.push((client, container));
    }
    let mut both: Vec<_> = sides.iter_mut().zip(&mut clients).collect();
    for round in 0..ROUNDS {
        compare::in_turns(round, &mut both, |(side, (client, container))| {
            call_each(client, container, &mut side.samples)
        })?;
        if let (Some(docker), Some((side, _))) = (docker, both.first_mut())
            && round % DOCKER_EVERY == 0
        {
            side.samples.add(DOCKER_EXEC, timed(|| docker.exec_true())?);
        }
    }
    for (client, container) in &mut clients {
        client.call("kill", &json!({"container_id": container}))?;
    }
    Ok(())
}

fn call_each(client: &mut Client, container: &str, samples: &mut Samples) -> Result<()> {
    samples.add(PING, timed(|| client.request("ping", &json!({})))?);
    for (row, request) in [(SPAWN, json!({"pids": 255})), (SPAWN_WARM, json!({}))] {
        warm::until_ready(client)?;
        let start = Instant::now();
        let fresh = client.call("spawn", &request)?;
        samples.add(row, start.elapsed());
        ensure!(fresh["warm"] == json!(row == SPAWN_WARM), "{row}: {fresh}");
        let kill = json!({"container_id": fresh["container_id"], "force": true});
        client.call("kill", &kill)?;
    }
    // Wait for the refill of the pool, which would be measured, too.
    warm::until_ready(client)?;
    samples.add(EXEC, timed(|| exec_true(client, container))?);
    for (write, read, size) in [(WRITE_1K, READ_1K, 1 << 10), (WRITE_1M, READ_1M, 1 << 20)] {
        let content = "x".repeat(size);
        let file = json!({"container_id": container, "path": "f", "content": content});
        samples.add(write, timed(|| client.call("fs_write", &file))?);
        // By default, only a part of a large file is returned.
        let file = json!({"container_id": container, "path": "f", "limit": size});
        let start = Instant::now();
        let answer = client.call("fs_read", &file)?;
        samples.add(read, start.elapsed());
        ensure!(answer["truncated"] == json!(false), "{read}: it was cut");
    }
    Ok(())
}

fn bounds(samples: &Samples, report: &Report) {
    samples.within(report, START, 100.0);
    samples.within(report, SPAWN, 15.0);
    samples.within(report, SPAWN_WARM, 5.0);
    samples.within(report, EXEC, 3.0);
    samples.times_faster(report, EXEC, 25.0, DOCKER_EXEC);
    samples.within(report, WRITE_1K, 1.5);
    samples.within(report, READ_1K, 1.5);
    samples.within(report, WRITE_1M, 15.0);
    samples.within(report, READ_1M, 15.0);
}

fn table(samples: &Samples, readme: &mut Readme) {
    let two = |one, other| format!("{}, {}", p50(samples, one), p50(samples, other));
    let docker = format!("`docker exec` {}", p50(samples, DOCKER_EXEC));
    readme.table();
    readme.row("`spawn`, warm, cold", &two(SPAWN_WARM, SPAWN), "");
    readme.row(
        "`exec_start` of `true`, waited for",
        &p50(samples, EXEC),
        &docker,
    );
    readme.row("`fs_write`, `fs_read` of 1 KB", &two(WRITE_1K, READ_1K), "");
    readme.row("`fs_write`, `fs_read` of 1 MB", &two(WRITE_1M, READ_1M), "");
}

pub(super) fn spawn(client: &mut Client) -> Result<String> {
    let container = client.call("spawn", &json!({}))?;
    let id = container["container_id"].as_str().context("container_id")?;
    Ok(id.to_owned())
}

pub(super) fn exec_true(client: &mut Client, container: &str) -> Result<()> {
    let exec = json!({"container_id": container, "cmd": ["true"], "wait_s": 20});
    let ended = client.call("exec_start", &exec)?;
    ensure!(ended["exit_code"] == json!(0), "{ended}");
    Ok(())
}

pub(super) fn start_exec(client: &mut Client, container: &str, line: &str) -> Result<String> {
    let exec = json!({"container_id": container, "cmd": ["sh", "-c", line]});
    let exec = client.call("exec_start", &exec)?;
    Ok(exec["exec_id"].as_str().context("exec_id")?.to_owned())
}
