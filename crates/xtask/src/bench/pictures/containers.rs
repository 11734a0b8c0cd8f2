//! What idle containers cost: memory, and the time of a call beside them.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::svg::{self, Axis, Line};
use super::{Drawn, whole};
use crate::bench::docker::Docker;
use crate::bench::many;
use crate::bench::memory::{agents, private_bytes, shims};
use crate::bench::samples::{Samples, millis};
use crate::bench::server::{exec_true, spawn};
use crate::bench::server_process::Server;
use crate::bench::timed;

const COUNTS: [usize; 8] = [1, 10, 50, 100, 250, 500, 1000, 2000];
const DOCKER_COUNTS: [usize; 4] = [1, 4, 10, 20];

/// Calls at each number of containers.
const CALLS: usize = 40;

/// Both pictures: memory, and time.
pub(super) fn draw(program: &Path, docker: Option<&Docker>) -> Result<[Drawn; 2]> {
    let server = Server::start_with(program, &many::ARGUMENTS, &[])?;
    let mut client = server.client()?;
    let mut names = Vec::new();
    let (mut ours, mut calls) = (Vec::new(), Vec::new());
    for count in COUNTS {
        while names.len() < count {
            names.push(spawn(&mut client).context("spawn")?);
        }
        let inside: u64 = agents(&names)?.into_iter().flat_map(private_bytes).sum();
        ours.push((whole(count), mib(inside + server.anonymous_bytes()?)));
        let mut samples = Samples::default();
        for _ in 0..CALLS {
            samples.add("true", timed(|| exec_true(&mut client, &names[0]))?);
        }
        let median = samples.percentile("true", 50).context("it was measured")?;
        calls.push((whole(count), millis(median)));
    }
    for container in &names {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    let line = |name: &str, points| Line {
        name: name.to_owned(),
        points,
    };
    let mut memory = vec![line("hotcell: server and agents", ours)];
    if let Some(docker) = docker {
        memory.push(line("docker: shims only", docker_memory(docker)?));
    }
    let calls = vec![line("hotcell, exec_start true", calls)];
    let containers = Axis {
        title: "idle containers",
        tick: |value| format!("{value:.0}"),
    };
    let mib_axis = Axis {
        title: "MiB",
        tick: |value| format!("{value}"),
    };
    let ms_axis = Axis {
        title: "ms, median",
        tick: |value| format!("{value}"),
    };
    Ok([
        Drawn {
            file: "memory.svg",
            heading: "Memory",
            text: "Private memory of the agents, and anonymous memory of the server and its launcher. Of Docker only the shim of \
                   each container is counted; `dockerd` and `containerd` come on top."
                .to_owned(),
            svg: svg::lines("Memory of idle containers", [&containers, &mib_axis], &memory),
            table: super::table("containers", &memory, |mib| format!("{mib:.1} MiB")),
            samples: None,
        },
        Drawn {
            file: "containers.svg",
            heading: "Beside many containers",
            text: format!("The median of {CALLS} calls in one container while the others are idle."),
            svg: svg::lines("A call beside idle containers", [&containers, &ms_axis], &calls),
            table: super::table("containers", &calls, |ms| format!("{ms:.2} ms")),
            samples: None,
        },
    ])
}

fn docker_memory(docker: &Docker) -> Result<Vec<(f64, f64)>> {
    let (mut points, mut made) = (Vec::new(), Vec::new());
    for count in DOCKER_COUNTS {
        while made.len() < count {
            made.push(docker.run_detached()?);
        }
        let bytes: u64 = shims(&made)?.into_iter().flat_map(private_bytes).sum();
        points.push((whole(count), mib(bytes)));
    }
    made.iter()
        .try_for_each(|container| docker.remove(container))?;
    Ok(points)
}

#[expect(clippy::cast_precision_loss, reason = "a size to draw")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
