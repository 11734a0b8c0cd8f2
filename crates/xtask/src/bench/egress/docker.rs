//! A download through the stream that Docker's engine carries.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::origin::{Origin, RAW, RAW_PORT};
use crate::bench::client::Client;
use crate::bench::docker::{Docker, IMAGE};
use crate::bench::readme::Readme;
use crate::bench::report::Report;
use crate::bench::samples::Samples;
use crate::bench::server_process::Server;
use crate::bench::timed;

const DOWNLOAD: &str = "download, spliced, not paced, on Docker";
const DOWNLOADS: usize = 5;
const DOWNLOAD_BYTES: u32 = 200_000_000;
const MB_PER_SECOND_MIN: f64 = 200.0;

pub(super) fn run(
    program: &Path,
    origin: &Origin,
    docker: Option<&Docker>,
    report: &Report,
    readme: &mut Readme,
) -> Result<()> {
    let Some(docker) = docker else {
        report.unmeasured("a download through Docker's stream: there is no Docker");
        return Ok(());
    };
    let (file, host) = (origin.configuration().display().to_string(), docker.host());
    let variables = [("HOTCELL_CONFIG", &*file), ("DOCKER_HOST", &*host)];
    let arguments = ["--engine", "docker", "--default-image", IMAGE];
    let server = Server::start_with(program, &arguments, &variables)?;
    let mut client = server.client()?;
    let mut samples = Samples::default();
    let spawned = client.call("spawn", &json!({ "egress": "fast", "cpus": 2 }))?;
    let container = spawned["container_id"].as_str().context("container_id")?;
    for _ in 0..DOWNLOADS {
        samples.add(DOWNLOAD, timed(|| download(&mut client, container))?);
    }
    let kill = json!({ "container_id": container, "force": true });
    client.call("kill", &kill)?;
    samples.print();
    let rate = super::rate(&samples, DOWNLOAD, DOWNLOAD_BYTES);
    report.verdict(
        rate >= MB_PER_SECOND_MIN,
        &format!("{DOWNLOAD}: {rate:.0} MB/s, at least {MB_PER_SECOND_MIN}"),
    );
    readme.row(
        "one download through Docker's stream, not paced",
        &format!("{rate:.0} MB/s"),
        "",
    );
    Ok(())
}

/// With the one program of the image; the start of it is a part of what is measured.
fn download(client: &mut Client, container: &str) -> Result<()> {
    let script = format!("echo {DOWNLOAD_BYTES} | nc {RAW} {RAW_PORT} > /dev/null");
    let command = ["/bin/busybox", "sh", "-c", &script];
    let exec = json!({ "container_id": container, "cmd": command, "wait_s": 50 });
    let ran = client.call("exec_start", &exec)?;
    ensure!(ran["exit_code"] == json!(0), "{ran}");
    let bytes = ran["egress"]["bytes_down"].as_u64().unwrap_or_default();
    ensure!(bytes >= DOWNLOAD_BYTES.into(), "it was cut off: {ran}");
    Ok(())
}
