//! What a file costs, by its size.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use super::latency::tempfile_directory;
use super::svg::{self, Axis, Line};
use super::{Drawn, whole};
use crate::bench::docker::Docker;
use crate::bench::readme::shown;
use crate::bench::samples::{Samples, millis};
use crate::bench::server::spawn;
use crate::bench::server_process::Server;
use crate::bench::timed;

/// Sizes in bytes, and in how many rounds each is measured.
const SIZES: [(usize, usize); 6] = [
    (1_000, 40),
    (10_000, 40),
    (100_000, 40),
    (1_000_000, 20),
    (10_000_000, 10),
    (100_000_000, 6),
];

/// One in so many rounds is Docker's, too.
const DOCKER_EVERY: usize = 5;

const ROWS: [&str; 4] = [
    "hotcell, PUT",
    "hotcell, GET",
    "docker cp, in",
    "docker cp, out",
];

pub(super) fn draw(program: &Path, docker: Option<&Docker>) -> Result<Drawn> {
    let server = Server::start(program)?;
    let mut client = server.client()?;
    let container = spawn(&mut client)?;
    let path = format!("/v1/containers/{container}/files/f");
    let directory = tempfile_directory("sizes")?;
    let file = directory.join("f");
    let mut lines: Vec<Line> = ROWS
        .map(|name| Line {
            name: name.to_owned(),
            points: Vec::new(),
        })
        .into();
    for (size, rounds) in SIZES {
        let content = vec![b'x'; size];
        std::fs::write(&file, &content)?;
        let mut samples = Samples::default();
        for round in 0..rounds {
            samples.add(ROWS[0], timed(|| client.put(&path, &content))?);
            samples.add(
                ROWS[1],
                timed(|| {
                    let read = client.get(&path)?;
                    ensure!(read.len() == size, "{} bytes of {size} came", read.len());
                    Ok(())
                })?,
            );
            if let Some(docker) = docker.filter(|_| round % DOCKER_EVERY == 0) {
                samples.add(ROWS[2], timed(|| docker.copy_in(&file))?);
                samples.add(ROWS[3], timed(|| docker.copy_out(&directory.join("out")))?);
            }
        }
        for (row, line) in ROWS.into_iter().zip(&mut lines) {
            let median = samples.percentile(row, 50);
            line.points
                .extend(median.map(|time| (whole(size), millis(time))));
        }
    }
    client.call("kill", &json!({"container_id": container, "force": true}))?;
    std::fs::remove_dir_all(&directory)?;
    lines.retain(|line| !line.points.is_empty());
    Ok(Drawn {
        file: "sizes.svg",
        heading: "Files",
        text: "A file is replaced and read over HTTP (`/v1/containers/{id}/files/…`), and copied by `docker cp`; the median.".to_owned(),
        svg: svg::lines(
            "A file in and out of a container, by its size",
            [
                &Axis { title: "bytes", tick: bytes },
                &Axis { title: "ms, median", tick: |value| format!("{value}") },
            ],
            &lines,
        ),
        table: super::table_of("size", bytes, &lines, |ms| shown(std::time::Duration::from_secs_f64(ms / 1000.0))),
        samples: None,
    })
}

fn bytes(size: f64) -> String {
    match size {
        size if size >= 1e6 => format!("{:.0} MB", size / 1e6),
        size if size >= 1e3 => format!("{:.0} KB", size / 1e3),
        size => format!("{size:.0} B"),
    }
}
