//! How long a call takes: beside the bare process, Docker, Podman and other MCP servers.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::peer::Peer;
use super::podman::Podman;
use super::svg::{self, Axis, Bar};
use super::{Drawn, PeerCommand, Pictures};
use crate::bench::docker::Docker;
use crate::bench::embedded::floor;
use crate::bench::readme::shown;
use crate::bench::samples::{Samples, millis};
use crate::bench::server::{exec_true, spawn};
use crate::bench::server_process::Server;
use crate::bench::{timed, warm};

const ROUNDS: usize = 120;

/// Engines take a third of a second for each of theirs.
const ENGINES_EVERY: usize = 6;

const FLOOR: &str = "bare process (fork, exec, wait)";
const EXEC: &str = "hotcell, exec_start true";
const LIFE: &str = "hotcell, spawn + true + kill";
const SNIPPET: &str = "hotcell, execute_code print(1)";
const RUN: &str = "hotcell run -- true";

/// Whose a row is, by the beginning of its name; others are peers.
const GROUPS: [&str; 4] = ["bare", "hotcell", "docker", "podman"];

pub(super) fn draw(program: &Path, docker: Option<&Docker>, wanted: &Pictures) -> Result<Drawn> {
    let server = Server::start(program)?;
    let mut client = server.client()?;
    warm::until_ready(&mut client)?;
    let live = spawn(&mut client)?;
    client.call("execute_code", &json!({"code": "print(1)"}))?;
    let podman = Podman::start().context("start Podman")?;
    let state = tempfile_directory("peer")?;
    let mut peers = vec![Peer::start(&ourselves(program, &state)?)?];
    for command in &wanted.peers {
        peers.push(Peer::start(command)?);
    }
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        samples.add(FLOOR, timed(floor)?);
        samples.add(EXEC, timed(|| exec_true(&mut client, &live))?);
        samples.add(LIFE, {
            warm::until_ready(&mut client)?;
            timed(|| {
                let made = spawn(&mut client)?;
                exec_true(&mut client, &made)?;
                let kill = json!({"container_id": made, "force": true});
                client.call("kill", &kill).map(drop)
            })?
        });
        warm::until_ready(&mut client)?;
        let snippet = json!({"code": "print(1)"});
        samples.add(SNIPPET, timed(|| client.call("execute_code", &snippet))?);
        samples.add(RUN, timed(|| run_true(program, &state))?);
        for peer in &mut peers {
            peer.each(|row, call| {
                samples.add(row.to_owned(), timed(call)?);
                Ok(())
            })?;
        }
        if round % ENGINES_EVERY == 0 {
            engines(docker, podman.as_ref(), &mut samples)?;
        }
    }
    drop(peers);
    std::fs::remove_dir_all(&state)?;
    samples.print();
    Ok(Drawn {
        file: "latency.svg",
        heading: "Latency",
        text: format!(
            "One call after the other, each subject once in each of {ROUNDS} rounds (Docker and Podman in every {ENGINES_EVERY}th). \
             The black line is the interval that holds the true median 19 times in 20. `hotcell over stdio` and other servers \
             are called over stdio, the rest of Hotcell over HTTP."
        ),
        svg: picture(&samples),
        samples: Some(samples),
        table: Vec::new(),
    })
}

fn engines(docker: Option<&Docker>, podman: Option<&Podman>, samples: &mut Samples) -> Result<()> {
    if let Some(docker) = docker {
        samples.add("docker exec true", timed(|| docker.exec_true())?);
        samples.add("docker run true", timed(|| docker.run_true_alone())?);
    }
    if let Some(podman) = podman {
        samples.add("podman exec true", timed(|| podman.exec_true())?);
        samples.add("podman run true", timed(|| podman.run_true())?);
    }
    Ok(())
}

/// Hotcell as its peers are: a program over stdio.
fn ourselves(program: &Path, state: &Path) -> Result<PeerCommand> {
    let words = [
        program.to_str().context("a plain path")?,
        "serve",
        "--transport",
        "stdio",
        "--state-dir",
        state.to_str().context("a plain path")?,
    ];
    PeerCommand::new("hotcell over stdio", words.map(str::to_owned).to_vec())
}

fn run_true(program: &Path, state: &Path) -> Result<()> {
    let status = Command::new(program)
        .args(["run", "--", "true"])
        .env("HOTCELL_STATE_DIR", state.join("run"))
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "hotcell run: {status}");
    Ok(())
}

pub(super) fn tempfile_directory(name: &str) -> Result<std::path::PathBuf> {
    let name = format!("hotcell-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn picture(samples: &Samples) -> String {
    let group = |row: &str| {
        let known = GROUPS.iter().position(|start| row.starts_with(start));
        known.unwrap_or(GROUPS.len())
    };
    let bars = samples.summaries().map(|(row, one)| Bar {
        label: row.to_owned(),
        group: group(row),
        value: millis(one.p50),
        interval: one.median.map(|(low, high)| (millis(low), millis(high))),
    });
    let mut bars: Vec<Bar> = bars.collect();
    bars.sort_by(|one, other| {
        (one.group, one.value)
            .partial_cmp(&(other.group, other.value))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let axis = Axis {
        title: "median, logarithmic",
        tick: |ms| shown(std::time::Duration::from_secs_f64(ms / 1000.0)),
    };
    svg::bars("How long one call takes", &axis, &bars)
}
