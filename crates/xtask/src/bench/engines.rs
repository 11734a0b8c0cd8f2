//! The server on Docker, compared with Docker's own commands.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::docker::{Docker, IMAGE};
use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::Samples;
use super::server::exec_true;
use super::server_process::Server;
use super::timed;
use super::warm::until_ready;

const WARM: &str = "docker: spawn, warm";
const COLD: &str = "docker: spawn, cold";
const RUN: &str = "docker run -d";
const EXEC: &str = "docker: exec_start true, waited for";
const DOCKER_EXEC: &str = "docker exec true";
const WRITE: &str = "docker: fs_write 1 KB";
const READ: &str = "docker: fs_read 1 KB";

/// Rounds of execs and files, and how many of them also create containers.
const ROUNDS: usize = 100;
const SPAWN_EVERY: usize = 4;

/// A limit that no warm container has, so that the container must be created.
const COLD_MEMORY: &str = "400m";

pub(super) fn run(
    program: &Path,
    docker: Option<&Docker>,
    report: &Report,
    readme: &mut Readme,
) -> Result<()> {
    let Some(docker) = docker else {
        report.unmeasured("other engines: there is no Docker");
        return Ok(());
    };
    let arguments = [
        "--engine",
        "docker",
        "--default-image",
        IMAGE,
        "--warm",
        "2",
    ];
    let host = docker.host();
    let server = Server::start_with(program, &arguments, &[("DOCKER_HOST", &host)])?;
    let samples = measure(&mut server.client()?, docker)?;
    samples.print();
    samples.within(report, WARM, 10.0);
    samples.within(report, EXEC, 5.0);
    samples.times_faster(report, EXEC, 15.0, DOCKER_EXEC);
    samples.within(report, WRITE, 2.0);
    samples.within(report, READ, 2.0);
    table(&samples, readme);
    Ok(())
}

fn table(samples: &Samples, readme: &mut Readme) {
    let of = |row| p50(samples, row);
    readme.table();
    readme.row(
        "`spawn`, warm, cold",
        &format!("{}, {}", of(WARM), of(COLD)),
        &format!("`docker run -d` {}", of(RUN)),
    );
    readme.row(
        "`exec_start` of `true`, waited for",
        &of(EXEC),
        &format!("`docker exec` {}", of(DOCKER_EXEC)),
    );
    readme.row(
        "`fs_write`, `fs_read` of 1 KB",
        &format!("{}, {}", of(WRITE), of(READ)),
        "",
    );
}

fn measure(client: &mut Client, docker: &Docker) -> Result<Samples> {
    let mut samples = Samples::default();
    let live = id(&client.call("spawn", &json!({}))?)?;
    let content = "x".repeat(1 << 10);
    for round in 0..ROUNDS {
        if round % SPAWN_EVERY == 0 {
            spawns(client, docker, &mut samples)?;
            samples.add(DOCKER_EXEC, timed(|| docker.exec_true())?);
        }
        samples.add(EXEC, timed(|| exec_true(client, &live))?);
        let file = json!({"container_id": live, "path": "f", "content": content});
        samples.add(WRITE, timed(|| client.call("fs_write", &file))?);
        let file = json!({"container_id": live, "path": "f"});
        samples.add(READ, timed(|| client.call("fs_read", &file))?);
    }
    kill(client, &live)?;
    Ok(samples)
}

/// One container of each kind.
fn spawns(client: &mut Client, docker: &Docker, samples: &mut Samples) -> Result<()> {
    until_ready(client)?;
    let start = Instant::now();
    let warm = client.call("spawn", &json!({}))?;
    samples.add(WARM, start.elapsed());
    ensure!(warm["warm"] == json!(true), "not warm: {warm}");
    kill(client, &id(&warm)?)?;
    // Wait for the refill of the pool, which would be measured, too.
    until_ready(client)?;
    let start = Instant::now();
    let cold = client.call("spawn", &json!({"memory": COLD_MEMORY}))?;
    samples.add(COLD, start.elapsed());
    ensure!(cold["warm"] == json!(false), "not cold: {cold}");
    kill(client, &id(&cold)?)?;
    let start = Instant::now();
    let theirs = docker.run_detached()?;
    samples.add(RUN, start.elapsed());
    docker.remove(&theirs)
}

fn kill(client: &mut Client, container: &str) -> Result<()> {
    let kill = json!({"container_id": container, "force": true});
    client.call("kill", &kill).map(drop)
}

fn id(container: &Value) -> Result<String> {
    let id = container["container_id"].as_str().context("container_id")?;
    Ok(id.to_owned())
}
