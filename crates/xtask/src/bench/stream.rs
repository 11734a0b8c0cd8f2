//! How soon output can be polled after a process has written it.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::client::Client;
use super::report::Report;
use super::samples::Samples;
use super::server::{spawn, start_exec};

const POLLED: &str = "byte written to byte polled";
const WITHIN_MS: f64 = 20.0;

/// Number of lines to wait for.
const LINES: usize = 100;

/// Each line contains the time just before it was written, by the clock of this host.
const WRITER: &str = "while :; do date +%s%N; sleep 0.03; done";

/// Waits for each line of a process that never ends.
pub(super) fn run(client: &mut Client, samples: &mut Samples) -> Result<()> {
    let container = spawn(client)?;
    let exec = start_exec(client, &container, WRITER)?;
    let mut after_seq = 0;
    for _ in 0..LINES {
        let poll = json!({"exec_id": exec, "after_seq": after_seq, "wait_s": 20});
        let page = client.call("exec_poll", &poll)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        ensure!(page["complete"] == json!(false), "it has ended: {page}");
        after_seq = page["next_seq"].as_u64().context("next_seq")?;
        let newest = page["messages"].as_array().and_then(|all| all.last());
        let text = newest.and_then(|message| message["data"].as_str());
        let written = text.and_then(|text| text.lines().last()?.parse().ok());
        let written = Duration::from_nanos(written.context("a time was written")?);
        samples.add(POLLED, now.saturating_sub(written));
    }
    client.call("kill", &json!({"container_id": container, "force": true}))?;
    Ok(())
}

pub(super) fn bounds(samples: &Samples, report: &Report) {
    samples.nearly_all_within(report, POLLED, WITHIN_MS);
}
