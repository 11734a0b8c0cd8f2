//! Whether the warm pool keeps up with requests.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::client::Client;
use super::report::Report;
use super::server_process::Server;

/// Spawns per second, and for how long.
const SPAWNS_PER_SECOND: u32 = 20;
const SECONDS: u32 = 10;

/// Size of the warm pool.
const WARM: &str = "4";

/// How long the pool may take to become full.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Spawns containers at a steady rate, and kills each from another thread.
pub(super) fn run(program: &Path, report: &Report) -> Result<()> {
    let server = Server::start_with(program, &["--warm", WARM], &[])?;
    let mut client = server.client()?;
    until_ready(&mut client)?;
    let (kill, to_kill) = mpsc::channel::<Value>();
    let mut killer = server.client()?;
    let killing = std::thread::spawn(move || -> Result<()> {
        for id in to_kill {
            killer.call("kill", &json!({"container_id": id, "force": true}))?;
        }
        Ok(())
    });
    let (count, mut warm) = (SPAWNS_PER_SECOND * SECONDS, 0);
    let begun = Instant::now();
    for number in 0..count {
        let due = begun + Duration::from_secs(1) / SPAWNS_PER_SECOND * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let spawned = client.call("spawn", &json!({}))?;
        warm += u32::from(spawned["warm"] == json!(true));
        kill.send(spawned["container_id"].clone())?;
    }
    let rate = f64::from(count) / begun.elapsed().as_secs_f64();
    drop(kill);
    killing.join().ok().context("the killer panicked")??;
    let is_steady = rate >= f64::from(SPAWNS_PER_SECOND) * 0.95;
    report.verdict(
        warm == count && is_steady,
        &format!(
            "{rate:.0} spawns/s for {SECONDS} s: {warm} of {count} warm, all at {SPAWNS_PER_SECOND}/s"
        ),
    );
    Ok(())
}

/// Waits until the pool is full.
pub(super) fn until_ready(client: &mut Client) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let status = client.call("system_status", &json!({}))?;
        let stocks = status["warm"].as_array().context("warm")?;
        if stocks.iter().all(|stock| stock["ready"] == stock["wanted"]) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the pool does not fill: {}", status["warm"]);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
