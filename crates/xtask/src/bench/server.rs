//! The whole server, over Streamable HTTP on loopback, beside Docker.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::docker::Docker;
use super::memory::{anonymous_bytes, private_bytes, rss_bytes};
use super::report::Report;
use super::samples::Samples;
use super::{DOCKER_EVERY, ROUNDS, stream, timed, warm};
use crate::workspace;

const SPAWN: &str = "spawn, cold";
const SPAWN_WARM: &str = "spawn, warm";
const EXEC: &str = "exec_start true, waited for";
const WRITE_1K: &str = "fs_write 1 KB";
const READ_1K: &str = "fs_read 1 KB";
const WRITE_1M: &str = "fs_write 1 MB";
const READ_1M: &str = "fs_read 1 MB";
const PING: &str = "ping";
const DOCKER_EXEC: &str = "docker exec true";

/// How long a server may take to answer at all.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is tried meanwhile.
const START_RETRY: Duration = Duration::from_micros(500);

/// Starts that are measured.
const STARTS: usize = 11;

/// Callers at once, and for how long.
const CALLERS: usize = 16;
const CALLERS_TIME: Duration = Duration::from_secs(5);

/// What is read through `exec_poll`.
const POLLED_BYTES: u64 = 10_000_000;

/// Execs that stream at once, four to a container, and what each writes.
const STREAMS: usize = 64;
const STREAMS_PER_CONTAINER: usize = 4;
const STREAM_BYTES: u64 = 32 << 20;

/// Memory of the server while they do.
const STREAMS_RSS_BYTES_MAX: u64 = 128 << 20;

/// Anonymous memory of an idle server and its launcher. The rest of what is resident is the program itself, which the kernel
/// can drop and read again.
const IDLE_ANONYMOUS_BYTES_MAX: u64 = 4 << 20;
const START_MS_MAX: u128 = 100;
const CALLS_PER_SECOND_MIN: f64 = 600.0;
const POLL_MB_PER_SECOND_MIN: f64 = 50.0;

/// The real binary, on a state directory of its own.
pub(super) struct Server {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
}

pub(super) fn run(docker: Option<&Docker>, report: &Report) -> Result<()> {
    let program = workspace::build_release("hotcell")?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let server = Server::start(&program)?;
        starts.push(start.elapsed());
        drop(server);
    }
    starts.sort_unstable();
    let server = Server::start(&program)?;
    warm::until_ready(&mut server.client()?)?;
    let (idle_bytes, idle_rss_bytes) = (server.anonymous_bytes()?, server.rss_bytes()?);
    calls(&server, docker, report)?;
    let start_ms = starts[STARTS / 2].as_millis();
    report.verdict(
        start_ms <= START_MS_MAX,
        &format!("server start to first answer: {start_ms} ms, at most {START_MS_MAX}"),
    );
    report.verdict(
        idle_bytes <= IDLE_ANONYMOUS_BYTES_MAX,
        &format!(
            "idle server with its launcher: {} KiB of anonymous memory, at most {} ({} KiB resident)",
            idle_bytes >> 10,
            IDLE_ANONYMOUS_BYTES_MAX >> 10,
            idle_rss_bytes >> 10,
        ),
    );
    poll(&server, report)?;
    stream::run(&mut server.client()?, report)?;
    callers(&server, report)?;
    streams(&server, report)?;
    drop(server);
    warm::run(&program, report)
}

/// One call after the other, each kind in each round.
fn calls(server: &Server, docker: Option<&Docker>, report: &Report) -> Result<()> {
    let mut samples = Samples::default();
    let mut client = server.client()?;
    let container = spawn(&mut client)?;
    let (small, large) = ("x".repeat(1 << 10), "x".repeat(1 << 20));
    for round in 0..ROUNDS {
        samples.add(PING, timed(|| client.request("ping", &json!({})))?);
        for (row, request) in [(SPAWN, json!({"pids": 255})), (SPAWN_WARM, json!({}))] {
            warm::until_ready(&mut client)?;
            let start = Instant::now();
            let fresh = client.call("spawn", &request)?;
            samples.add(row, start.elapsed());
            ensure!(fresh["warm"] == json!(row == SPAWN_WARM), "{row}: {fresh}");
            let kill = json!({"container_id": fresh["container_id"], "force": true});
            client.call("kill", &kill)?;
        }
        // The next warm container is made meanwhile, which would be measured too.
        warm::until_ready(&mut client)?;
        samples.add(EXEC, timed(|| exec_true(&mut client, &container))?);
        for (write, read, content) in [(WRITE_1K, READ_1K, &small), (WRITE_1M, READ_1M, &large)] {
            let file = json!({"container_id": container, "path": "f", "content": content});
            samples.add(write, timed(|| client.call("fs_write", &file))?);
            let file = json!({"container_id": container, "path": "f"});
            samples.add(read, timed(|| client.call("fs_read", &file))?);
        }
        if let Some(docker) = docker
            && round % DOCKER_EVERY == 0
        {
            samples.add(DOCKER_EXEC, timed(|| docker.exec_true())?);
        }
    }
    client.call("kill", &json!({"container_id": container}))?;
    samples.print();
    samples.within(report, SPAWN, 15.0);
    samples.within(report, SPAWN_WARM, 5.0);
    samples.within(report, EXEC, 3.0);
    samples.times_faster(report, EXEC, 25.0, DOCKER_EXEC);
    samples.within(report, WRITE_1K, 1.5);
    samples.within(report, READ_1K, 1.5);
    samples.within(report, WRITE_1M, 15.0);
    samples.within(report, READ_1M, 15.0);
    Ok(())
}

/// Reads all that one exec writes, as fast as it comes.
fn poll(server: &Server, report: &Report) -> Result<()> {
    let mut client = server.client()?;
    let container = spawn(&mut client)?;
    let line = format!("yes 0123456789abcdef | head -c {POLLED_BYTES}");
    let start = Instant::now();
    let exec = start_exec(&mut client, &container, &line)?;
    let (mut after_seq, mut bytes) = (0, 0);
    loop {
        let poll =
            json!({"exec_id": exec, "after_seq": after_seq, "wait_s": 10, "max_bytes": 1 << 20});
        let page = client.call("exec_poll", &poll)?;
        let messages = page["messages"].as_array().context("messages")?;
        let text = |message: &Value| message["data"].as_str().map_or(0, str::len);
        bytes += messages.iter().map(text).sum::<usize>() as u64;
        after_seq = page["next_seq"].as_u64().context("next_seq")?;
        if page["complete"] == json!(true) {
            break;
        }
    }
    let rate = as_mega(bytes) / start.elapsed().as_secs_f64();
    ensure!(
        bytes == POLLED_BYTES,
        "{bytes} bytes of {POLLED_BYTES} came"
    );
    report.verdict(
        rate >= POLL_MB_PER_SECOND_MIN,
        &format!(
            "10 MB of stdout through exec_poll: {rate:.0} MB/s, at least {POLL_MB_PER_SECOND_MIN}"
        ),
    );
    client.call("kill", &json!({"container_id": container}))?;
    Ok(())
}

/// Many callers at once, each in its own session, all in four containers.
fn callers(server: &Server, report: &Report) -> Result<()> {
    let mut client = server.client()?;
    let containers: Vec<String> = (0..4).map(|_| spawn(&mut client)).collect::<Result<_>>()?;
    let (count, errors) = (AtomicU64::new(0), AtomicU64::new(0));
    let deadline = Instant::now() + CALLERS_TIME;
    std::thread::scope(|scope| {
        for number in 0..CALLERS {
            let (containers, count, errors) = (&containers, &count, &errors);
            scope.spawn(move || {
                let Ok(mut client) = server.client() else {
                    errors.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                let container = &containers[number % containers.len()];
                while Instant::now() < deadline {
                    let counter = match exec_true(&mut client, container) {
                        Ok(()) => count,
                        Err(_) => errors,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (count, errors) = (count.into_inner(), errors.into_inner());
    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    let rate = count as f64 / CALLERS_TIME.as_secs_f64();
    report.verdict(
        rate >= CALLS_PER_SECOND_MIN && errors == 0,
        &format!(
            "exec true with {CALLERS} callers: {rate:.0}/s with {errors} errors, at least {CALLS_PER_SECOND_MIN}/s with none"
        ),
    );
    for container in containers {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    Ok(())
}

/// Many execs that write at once; the server's memory is watched meanwhile.
fn streams(server: &Server, report: &Report) -> Result<()> {
    let mut client = server.client()?;
    let count = STREAMS / STREAMS_PER_CONTAINER;
    let containers: Vec<String> = (0..count)
        .map(|_| spawn(&mut client))
        .collect::<Result<_>>()?;
    let line = format!("yes 0123456789abcdef | head -c {STREAM_BYTES}");
    let start = Instant::now();
    let mut execs = Vec::new();
    for container in &containers {
        for _ in 0..STREAMS_PER_CONTAINER {
            execs.push(start_exec(&mut client, container, &line)?);
        }
    }
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(server.rss_bytes().unwrap_or(0));
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let ended = execs
            .iter()
            .try_for_each(|exec| until_complete(&mut client, exec));
        is_over.store(true, Ordering::Relaxed);
        ended.map(|()| watch.join().unwrap_or(u64::MAX))
    })?;
    let rate = as_mega(STREAM_BYTES * STREAMS as u64) / start.elapsed().as_secs_f64();
    report.verdict(
        most <= STREAMS_RSS_BYTES_MAX,
        &format!(
            "{STREAMS} execs that stream at {rate:.0} MB/s: {} MiB of memory, at most {}",
            most >> 20,
            STREAMS_RSS_BYTES_MAX >> 20
        ),
    );
    for container in containers {
        client.call("kill", &json!({"container_id": container, "force": true}))?;
    }
    Ok(())
}

pub(super) fn spawn(client: &mut Client) -> Result<String> {
    let container = client.call("spawn", &json!({}))?;
    let id = container["container_id"].as_str().context("container_id")?;
    Ok(id.to_owned())
}

pub(super) fn exec_true(client: &mut Client, container: &str) -> Result<()> {
    let exec = json!({"container_id": container, "cmd": ["true"], "wait_s": 20});
    let ended = client.call("exec_start", &exec)?;
    ensure!(ended["exit_code"] == json!(0), "{ended}");
    Ok(())
}

pub(super) fn start_exec(client: &mut Client, container: &str, line: &str) -> Result<String> {
    let exec = json!({"container_id": container, "cmd": ["sh", "-c", line]});
    let exec = client.call("exec_start", &exec)?;
    Ok(exec["exec_id"].as_str().context("exec_id")?.to_owned())
}

fn until_complete(client: &mut Client, exec: &str) -> Result<()> {
    let mut after_seq = 0;
    loop {
        let poll =
            json!({"exec_id": exec, "after_seq": after_seq, "wait_s": 20, "max_bytes": 1 << 20});
        let page = client.call("exec_poll", &poll)?;
        if page["complete"] == json!(true) {
            ensure!(page["status"] == json!("succeeded"), "{}", page["status"]);
            return Ok(());
        }
        after_seq = page["next_seq"].as_u64().context("next_seq")?;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate to print")]
fn as_mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Server {
    /// Starts it and waits for its first answer.
    fn start(program: &Path) -> Result<Self> {
        Self::start_with(program, &[], &[])
    }

    /// The same, with more arguments and variables.
    pub(super) fn start_with(
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let directory = std::env::temp_dir().join(format!("hotcell-bench-{}", address.port()));
        std::fs::create_dir_all(&directory)?;
        let process = Command::new(program)
            // `system_status` tells when the pool is full.
            .args(["serve", "--admin-over-http", "--port"])
            .arg(address.port().to_string())
            .arg("--state-dir")
            .arg(&directory)
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("stderr"))?)
            .spawn()
            .context("start hotcell serve")?;
        let mut this = Self {
            process,
            address,
            directory,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while this.client().is_err() {
            if Instant::now() > deadline || this.process.try_wait()?.is_some() {
                let log = std::fs::read_to_string(this.directory.join("stderr"))?;
                bail!("hotcell serve does not answer: {log}");
            }
            std::thread::sleep(START_RETRY);
        }
        Ok(this)
    }

    pub(super) fn client(&self) -> Result<Client> {
        Client::connect(self.address)
    }

    /// Of the server and of the launcher, its only child. Both run the same file: the pages
    /// that they share are counted once.
    fn rss_bytes(&self) -> Result<u64> {
        let children = self.children()?.into_iter().flat_map(private_bytes);
        Ok(rss_bytes(self.process.id())? + children.sum::<u64>())
    }

    fn anonymous_bytes(&self) -> Result<u64> {
        let mut bytes = anonymous_bytes(self.process.id())?;
        for child in self.children()? {
            bytes += anonymous_bytes(child)?;
        }
        Ok(bytes)
    }

    fn children(&self) -> Result<Vec<u32>> {
        let pid = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(children.split_whitespace().flat_map(str::parse).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let terminated = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        if terminated.is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
