//! What many connections take of the server and of an agent, and what is left of them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::probe::Inside;
use crate::bench::client::Client;
use crate::bench::memory;
use crate::bench::report::Report;
use crate::bench::server_process::Server;

/// Connections of one container, which is nearly all that it may have.
const EACH: usize = 60;

const PAIRS_BYTES_MAX: u64 = 100 << 10;
const STOPPED_BYTES_MAX: u64 = 300 << 10;

/// Containers whose programs do not read what they asked for.
const STOPPED_CONTAINERS: usize = 8;
const ALL: u64 = 512;
const ALL_BYTES_MAX: u64 = 160 << 20;
const AGENT_STOPPED_BYTES_MAX: u64 = 16 << 20;
const AGENT_PROFILE_BYTES_MAX: u64 = 200 << 10;

const SHORT_EACH: usize = 2500;
const SHORT_TIMES: usize = 4;

/// How long memory has to stay as it is to be what it comes to, and how long that may take.
const STEADY: Duration = Duration::from_secs(1);
const STEADY_BYTES: u64 = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn run(server: &Server, client: &mut Client, report: &Report) -> Result<()> {
    pairs(server, client, report)?;
    stopped(server, client, report)?;
    short(server, client, report)?;
    agent(client, report)
}

/// Connections whose two halves of TLS are open.
fn pairs(server: &Server, client: &mut Client, report: &Report) -> Result<()> {
    let inside = Inside::spawn(client, "fast")?;
    inside.run(client, &["calls", "1", "inside"])?;
    let before = server.anonymous_bytes()?;
    inside.start(client, &["pairs", &EACH.to_string()])?;
    let more = steady(|| server.anonymous_bytes())?.saturating_sub(before);
    inside.kill(client)?;
    verdict(
        report,
        "an open pair of TLS connections, in the server",
        more / EACH as u64,
        PAIRS_BYTES_MAX,
    );
    Ok(())
}

/// Connections whose program asks for much and reads nothing.
fn stopped(server: &Server, client: &mut Client, report: &Report) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..STOPPED_CONTAINERS {
        let inside = Inside::spawn(client, "fast")?;
        inside.run(client, &["calls", "1", "inside"])?;
        all.push(inside);
    }
    let agent = memory::agent_of(&all[0].container)?;
    let before = (server.anonymous_bytes()?, memory::anonymous_bytes(agent)?);
    for inside in &all {
        inside.start(client, &["stopped", &EACH.to_string()])?;
    }
    let more = steady(|| server.anonymous_bytes())?.saturating_sub(before.0);
    let inside = memory::anonymous_bytes(agent)?.saturating_sub(before.1);
    all.into_iter().try_for_each(|inside| inside.kill(client))?;
    let each = more / (STOPPED_CONTAINERS * EACH) as u64;
    verdict(
        report,
        "a stopped tunnel, in the server",
        each,
        STOPPED_BYTES_MAX,
    );
    verdict(
        report,
        "512 stopped tunnels, in the server",
        each * ALL,
        ALL_BYTES_MAX,
    );
    let agent_bytes = inside * 64 / EACH as u64;
    verdict(
        report,
        "64 stopped tunnels, in the agent",
        agent_bytes,
        AGENT_STOPPED_BYTES_MAX,
    );
    Ok(())
}

fn short(server: &Server, client: &mut Client, report: &Report) -> Result<()> {
    let inside = Inside::spawn(client, "fast")?;
    inside.run(client, &["calls", "1", "inside"])?;
    let agent = memory::agent_of(&inside.container)?;
    let count = || -> Result<(u64, usize)> {
        let of_agent = std::fs::read_dir(format!("/proc/{agent}/fd"))?.count();
        Ok((server.held()?.descriptors, of_agent))
    };
    let before = count()?;
    for _ in 0..SHORT_TIMES {
        inside.run(client, &["short", &SHORT_EACH.to_string()])?;
    }
    let deadline = Instant::now() + PATIENCE;
    let mut after = count()?;
    while (after.0 > before.0 || after.1 > before.1) && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
        after = count()?;
    }
    inside.kill(client)?;
    report.verdict(
        after.0 <= before.0 && after.1 <= before.1,
        &format!(
            "descriptors after {} short connections: {} of the server ({} before), {} of the agent ({} before)",
            SHORT_EACH * SHORT_TIMES, after.0, before.0, after.1, before.1
        ),
    );
    Ok(())
}

/// What a profile that is used makes an agent grow by.
fn agent(client: &mut Client, report: &Report) -> Result<()> {
    let mut bytes = Vec::new();
    for profile in ["none", "fast"] {
        let inside = Inside::spawn(client, profile)?;
        inside.run(client, &["nothing"])?;
        let agent = memory::agent_of(&inside.container)?;
        bytes.push(steady(|| memory::rss_bytes(agent))?);
        inside.kill(client)?;
    }
    let more = bytes[1].saturating_sub(bytes[0]);
    verdict(
        report,
        "a profile, in the agent",
        more,
        AGENT_PROFILE_BYTES_MAX,
    );
    Ok(())
}

/// Waits until a number of bytes is what it comes to.
fn steady(bytes: impl Fn() -> Result<u64>) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut since) = (bytes()?, Instant::now());
    while since.elapsed() < STEADY {
        ensure!(Instant::now() < deadline, "memory does not come to rest");
        std::thread::sleep(PAUSE);
        let now = bytes()?;
        if now.abs_diff(last) > STEADY_BYTES {
            (last, since) = (now, Instant::now());
        }
    }
    bytes()
}

fn verdict(report: &Report, what: &str, bytes: u64, most: u64) {
    report.verdict(
        bytes <= most,
        &format!("{what}: {} KiB, at most {}", bytes >> 10, most >> 10),
    );
}
