//! How many calls a second are answered, by the number of callers.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::svg::{self, Axis, Line};
use super::{Drawn, whole};
use crate::bench::docker::Docker;
use crate::bench::embedded::floor;
use crate::bench::server::{exec_true, spawn};
use crate::bench::server_process::Server;

const CALLERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Containers that the callers share: 64 callers are four in each, as many execs as run at once.
const CONTAINERS: usize = 16;

/// Rounds, the median of which is drawn, and how long each caller calls.
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(1);

/// More callers than processors do not help Docker, and each call is a process here, too.
const DOCKER_CALLERS_MAX: usize = 16;

pub(super) fn draw(program: &Path, docker: Option<&Docker>) -> Result<Drawn> {
    let server = Server::start(program)?;
    let mut client = server.client()?;
    let containers = (0..CONTAINERS)
        .map(|_| spawn(&mut client))
        .collect::<Result<Vec<_>>>()?;
    let mut rates = vec![[const { Vec::new() }; 3]; CALLERS.len()];
    for _ in 0..ROUNDS {
        for (count, rates) in CALLERS.into_iter().zip(&mut rates) {
            // New ones each time: the server closes connections that are idle for long.
            let clients = (0..count).map(|_| server.client());
            let mut clients = clients.collect::<Result<Vec<_>>>()?;
            let ours = clients.iter_mut().zip(containers.iter().cycle());
            let ours = ours.map(|(client, container)| move || exec_true(client, container));
            rates[0].push(per_second(ours.collect())?);
            rates[1].push(per_second((0..count).map(|_| floor).collect())?);
            if let Some(docker) = docker.filter(|_| count <= DOCKER_CALLERS_MAX) {
                let theirs = (0..count).map(|_| || docker.exec_true());
                rates[2].push(per_second(theirs.collect())?);
            }
        }
    }
    let mut client = server.client()?;
    for container in &containers {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    let names = [
        "hotcell, exec_start true",
        "bare processes",
        "docker exec true",
    ];
    let lines = names.into_iter().enumerate().map(|(number, name)| Line {
        name: name.to_owned(),
        points: CALLERS
            .into_iter()
            .zip(&mut rates)
            .filter_map(|(count, rates)| Some((whole(count), median(&mut rates[number])?)))
            .collect(),
    });
    let lines: Vec<Line> = lines.collect();
    Ok(Drawn {
        file: "callers.svg",
        heading: "Throughput",
        text: format!(
            "Callers that each wait for an answer before they ask again, for {} s, in {CONTAINERS} containers; the median of \
             {ROUNDS} rounds. The callers run on the same processors.",
            TIME.as_secs()
        ),
        svg: svg::lines(
            "Calls a second, by the number of callers",
            [
                &Axis {
                    title: "callers",
                    tick: |value| format!("{value:.0}"),
                },
                &Axis {
                    title: "calls a second",
                    tick: |value| format!("{value:.0}"),
                },
            ],
            &lines,
        ),
        table: super::table("callers", &lines, |rate| format!("{rate:.0}/s")),
        samples: None,
    })
}

/// Has each of the callers call again and again; returns how many calls were answered in a second.
fn per_second<W: FnMut() -> Result<()> + Send>(callers: Vec<W>) -> Result<f64> {
    let (start, count) = (Instant::now(), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let run = |mut work: W| {
            let count = &count;
            scope.spawn(move || {
                while start.elapsed() < TIME {
                    work()?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        };
        let threads: Vec<_> = callers.into_iter().map(run).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().ok().context("a caller panicked")?)
    })?;
    Ok(f64::from(count.into_inner()) / start.elapsed().as_secs_f64())
}

fn median(rates: &mut [f64]) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}
