//! The throughput of a server: polled output, concurrent callers, concurrently streaming execs.
//!
//! The time of a fixed amount of work is measured, so that rounds can be compared; rates are
//! derived from it for readers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::readme::Readme;
use super::report::Report;
use super::samples::Samples;
use super::server::{Side, exec_true, spawn, start_exec};
use super::server_process::Server;
use super::{compare, timed};

const POLL: &str = "10 MB of stdout through exec_poll";
const CALLS: &str = "exec true, per call of 16 callers";
const STREAM: &str = "64 execs that stream 4 MiB each";

/// Few enough to stay below a minute, enough for a sign test.
const ROUNDS: usize = 10;

/// Bytes that are read through `exec_poll`.
const POLLED_BYTES: u64 = 10_000_000;

/// Concurrent callers, in how many containers, and for how long.
const CALLERS: usize = 16;
const CALLED_CONTAINERS: usize = 4;
const CALLERS_TIME: Duration = Duration::from_secs(1);

/// Concurrently streaming execs, four per container, and how much each writes.
const STREAMS: usize = 64;
const STREAMS_PER_CONTAINER: usize = 4;
const STREAM_BYTES: u64 = 4 << 20;

/// Memory of the server meanwhile.
const STREAMS_RSS_BYTES_MAX: u64 = 128 << 20;
const CALLS_PER_SECOND_MIN: f64 = 600.0;
const POLL_MB_PER_SECOND_MIN: f64 = 50.0;

/// Measures everything on each side, in turns.
pub(super) fn run(sides: &mut [Side]) -> Result<()> {
    for round in 0..ROUNDS {
        compare::in_turns(round, sides, |side| {
            let time = poll(&side.server)?;
            side.samples.add(POLL, time);
            let time = callers(&side.server)?;
            side.samples.add(CALLS, time);
            anyhow::Ok(())
        })?;
    }
    for round in 0..ROUNDS {
        compare::in_turns(round, sides, |side| {
            let (time, most) = streams(&side.server)?;
            side.samples.add(STREAM, time);
            side.streams_rss_bytes = side.streams_rss_bytes.max(most);
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

/// The bounds for the current binary.
pub(super) fn bounds(side: &Side, report: &Report, readme: &mut Readme) {
    let polled = rate(&side.samples, POLL, as_mega(POLLED_BYTES));
    let calls = rate(&side.samples, CALLS, 1.0);
    let streamed = rate(
        &side.samples,
        STREAM,
        as_mega(STREAM_BYTES * STREAMS as u64),
    );
    let most = side.streams_rss_bytes;
    report.verdict(
        polled >= POLL_MB_PER_SECOND_MIN,
        &format!("{POLL}: {polled:.0} MB/s, at least {POLL_MB_PER_SECOND_MIN}"),
    );
    report.verdict(
        calls >= CALLS_PER_SECOND_MIN,
        &format!(
            "exec true with {CALLERS} callers: {calls:.0}/s, at least {CALLS_PER_SECOND_MIN}/s"
        ),
    );
    report.verdict(
        most <= STREAMS_RSS_BYTES_MAX,
        &format!(
            "{STREAMS} execs that stream at {streamed:.0} MB/s: {} MiB of memory, at most {}",
            most >> 20,
            STREAMS_RSS_BYTES_MAX >> 20
        ),
    );
    readme.row(
        &format!("`exec_start` of `true`, {CALLERS} callers"),
        &format!("{calls:.0} a second"),
        "",
    );
    readme.row(
        "10 MB of stdout through `exec_poll`",
        &format!("{polled:.0} MB/s"),
        "",
    );
    readme.row(
        &format!("{STREAMS} execs that stream at once"),
        &format!("{streamed:.0} MB/s in {} MiB of memory", most >> 20),
        "",
    );
}

/// The rate per second at which `amount` is done in the median time of a row.
fn rate(samples: &Samples, row: &str, amount: f64) -> f64 {
    let time = samples.percentile(row, 50);
    time.map_or(0.0, |time| amount / time.as_secs_f64())
}

/// Reads the whole output of one exec as fast as it comes.
fn poll(server: &Server) -> Result<Duration> {
    let mut client = server.client()?;
    let container = spawn(&mut client)?;
    let line = format!("yes 0123456789abcdef | head -c {POLLED_BYTES}");
    let time = timed(|| {
        let exec = start_exec(&mut client, &container, &line)?;
        let bytes = until_complete(&mut client, &exec)?;
        ensure!(
            bytes == POLLED_BYTES,
            "{bytes} bytes of {POLLED_BYTES} came"
        );
        Ok(())
    })?;
    kill(&mut client, &[container])?;
    Ok(time)
}

/// Many concurrent callers, each in its own session. Returns the mean time of a call.
pub(super) fn callers(server: &Server) -> Result<Duration> {
    let mut client = server.client()?;
    let containers = spawn_many(&mut client, CALLED_CONTAINERS)?;
    let mut clients = (0..CALLERS)
        .map(|_| server.client())
        .collect::<Result<Vec<_>>>()?;
    let (start, count) = (Instant::now(), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let containers = containers.iter().cycle();
        let callers = clients
            .iter_mut()
            .zip(containers)
            .map(|(client, container)| {
                let count = &count;
                scope.spawn(move || {
                    while start.elapsed() < CALLERS_TIME {
                        exec_true(client, container)?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    anyhow::Ok(())
                })
            });
        let callers: Vec<_> = callers.collect();
        callers
            .into_iter()
            .try_for_each(|caller| caller.join().ok().context("a caller panicked")?)
    })?;
    let time = start.elapsed() / count.into_inner().max(1);
    kill(&mut client, &containers)?;
    Ok(time)
}

/// Many execs that write concurrently; the server's memory is measured meanwhile.
fn streams(server: &Server) -> Result<(Duration, u64)> {
    let mut client = server.client()?;
    let containers = spawn_many(&mut client, STREAMS / STREAMS_PER_CONTAINER)?;
    let line = format!("yes 0123456789abcdef | head -c {STREAM_BYTES}");
    let is_over = AtomicBool::new(false);
    let (time, most) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| most_rss_bytes(server, &is_over));
        let time = timed(|| {
            let mut execs = Vec::new();
            for container in &containers {
                for _ in 0..STREAMS_PER_CONTAINER {
                    execs.push(start_exec(&mut client, container, &line)?);
                }
            }
            for exec in &execs {
                until_complete(&mut client, exec)?;
            }
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok((time?, watch.join().unwrap_or(u64::MAX)))
    })?;
    kill(&mut client, &containers)?;
    Ok((time, most))
}

fn most_rss_bytes(server: &Server, is_over: &AtomicBool) -> u64 {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        most = most.max(server.rss_bytes().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    most
}

fn spawn_many(client: &mut Client, count: usize) -> Result<Vec<String>> {
    (0..count).map(|_| spawn(client)).collect()
}

fn kill(client: &mut Client, containers: &[String]) -> Result<()> {
    for container in containers {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    Ok(())
}

/// Reads an exec's output to its end; returns the number of bytes.
fn until_complete(client: &mut Client, exec: &str) -> Result<u64> {
    let (mut after_seq, mut bytes) = (0, 0);
    loop {
        let poll =
            json!({"exec_id": exec, "after_seq": after_seq, "wait_s": 20, "max_bytes": 1 << 20});
        let page = client.call("exec_poll", &poll)?;
        let messages = page["messages"].as_array().context("messages")?;
        let text = |message: &Value| message["data"].as_str().map_or(0, str::len);
        bytes += messages.iter().map(text).sum::<usize>() as u64;
        if page["complete"] == json!(true) {
            ensure!(page["status"] == json!("succeeded"), "{}", page["status"]);
            return Ok(bytes);
        }
        after_seq = page["next_seq"].as_u64().context("next_seq")?;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate to print")]
fn as_mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
