//! The operations of the embedded engine that the benchmark times.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hotcell_agent_client::{Agent, Command, EventKind, ExitCause, Follow, WriteOptions};
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, ImageRef, Policy};
use hotcell_engine::{Embedded, EmbeddedConfig, Engine};

use super::memory;
use super::report::Report;

/// Bytes that one exec writes in the streaming benchmark.
const STREAM_BYTES: u64 = 1 << 30;

/// Resident memory of server and agent together while they stream.
const STREAM_RSS_BYTES_MAX: u64 = 64 << 20;

/// Resident memory of an idle agent.
const AGENT_RSS_BYTES_MAX: u64 = 6 << 20;

/// Size of the agent's binary.
const AGENT_BYTES_MAX: usize = 4 << 20;

/// Whether the containers are put into cgroups.
#[derive(Clone, Copy)]
pub(super) enum Cgroups {
    Used,
    /// The difference to `Used` is the kernel's cost of creating and removing a cgroup.
    Unused,
}

pub(super) struct EngineCalls {
    with_cgroups: Embedded,
    without_cgroups: Embedded,
    home: PathBuf,
    spec: Admitted<ContainerSpec>,
}

/// A container that runs for the whole benchmark, and its agent.
pub(super) struct Live {
    id: ContainerId,
    agent: Agent,
}

impl Live {
    pub(super) fn id(&self) -> &str {
        self.id.as_str()
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }
}

impl EngineCalls {
    pub(super) fn open() -> Result<Self> {
        let home = std::env::temp_dir().join(format!("hotcell-bench-{}", std::process::id()));
        let open = |cgroups| {
            Embedded::open(EmbeddedConfig {
                home: home.clone(),
                tree: home.join("tree"),
                launcher: PathBuf::from("/proc/self/exe"),
                agent: hotcell_agent_image::AGENT,
                require_limits: false,
                cgroups,
            })
        };
        let spec = Policy::default().admit(ContainerSpec::new(ImageRef::Host))?;
        Ok(Self {
            with_cgroups: open(true)?,
            without_cgroups: open(false)?,
            home,
            spec,
        })
    }

    /// Removes everything that this benchmark created.
    pub(super) async fn close(self) -> Result<()> {
        for container in self.with_cgroups.list().await? {
            self.with_cgroups.destroy(&container.id).await?;
        }
        std::fs::remove_dir_all(&self.home).context("remove the benchmark's directory")
    }

    fn engine(&self, cgroups: Cgroups) -> &Embedded {
        match cgroups {
            Cgroups::Used => &self.with_cgroups,
            Cgroups::Unused => &self.without_cgroups,
        }
    }

    pub(super) async fn live(&self) -> Result<Live> {
        self.make(&self.with_cgroups).await
    }

    async fn make(&self, engine: &Embedded) -> Result<Live> {
        let id = new_id()?;
        hotcell_engine::fetch_and_create(engine, &id, &self.spec).await?;
        let agent = Agent::connect(engine.open(&id).await?).await?;
        Ok(Live { id, agent })
    }

    pub(super) async fn create_ready(&self, cgroups: Cgroups) -> Result<Duration> {
        let engine = self.engine(cgroups);
        let start = Instant::now();
        let live = self.make(engine).await?;
        let time = start.elapsed();
        engine.destroy(&live.id).await?;
        Ok(time)
    }

    pub(super) async fn whole_life(&self, cgroups: Cgroups) -> Result<Duration> {
        let engine = self.engine(cgroups);
        let start = Instant::now();
        let live = self.make(engine).await?;
        run_true(&live.agent, "life").await?;
        engine.destroy(&live.id).await?;
        Ok(start.elapsed())
    }

    pub(super) async fn exec_true(&self, live: &Live) -> Result<Duration> {
        let id = new_id()?;
        let start = Instant::now();
        run_true(&live.agent, id.as_str()).await?;
        let time = start.elapsed();
        live.agent.forget(id.as_str()).await?;
        Ok(time)
    }

    pub(super) async fn write(&self, live: &Live) -> Result<Duration> {
        let data = Bytes::from_static(&[b'x'; 1024]);
        let start = Instant::now();
        live.agent
            .write_all(b"bench", data, WriteOptions::default())
            .await?;
        Ok(start.elapsed())
    }

    pub(super) async fn read(&self, live: &Live) -> Result<Duration> {
        let start = Instant::now();
        let (_, reader) = live.agent.read(b"bench", 0, None).await?;
        let data = reader.collect(4096).await?;
        let time = start.elapsed();
        ensure!(data.len() == 1024, "read {} bytes", data.len());
        Ok(time)
    }

    /// Streams a gigabyte from an exec; returns the rate and the peak memory of both ends as text.
    pub(super) async fn stream(&self, live: &Live, report: &Report) -> Result<String> {
        let agent_pid = memory::agent_of(live.id.as_str())?;
        let idle = memory::rss_bytes(agent_pid)?;
        let size = hotcell_agent_image::AGENT.len();
        report.verdict(
            size <= AGENT_BYTES_MAX,
            &format!("agent: {size} bytes, at most {AGENT_BYTES_MAX}"),
        );
        report.verdict(
            idle <= AGENT_RSS_BYTES_MAX,
            &format!("idle agent: {} KiB of memory, at most 6144", idle >> 10),
        );
        let command = Command::new(["head", "-c", &STREAM_BYTES.to_string(), "/dev/zero"]);
        let start = Instant::now();
        let mut follow = live.agent.start("stream", &command).await?;
        let (mut received, mut most) = (0_u64, 0);
        while let Some(event) = follow.next().await? {
            if let EventKind::Output(_, data) = &event.kind {
                received += data.len() as u64;
            }
            follow.ack(event.seq);
            if event.seq % 1024 == 0 {
                most = most
                    .max(memory::rss_bytes(agent_pid)? + memory::rss_bytes(std::process::id())?);
            }
        }
        ensure!(received == STREAM_BYTES, "received {received} bytes");
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = received as f64 / 1e6 / start.elapsed().as_secs_f64();
        report.verdict(
            rate >= 200.0,
            &format!("1 GiB of stdout: {rate:.0} MB/s, at least 200"),
        );
        report.verdict(
            most <= STREAM_RSS_BYTES_MAX,
            &format!(
                "server and agent meanwhile: {} MiB of memory, at most 64",
                most >> 20
            ),
        );
        Ok(format!(
            "{rate:.0} MB/s in {} MiB of memory, both ends together",
            most >> 20
        ))
    }

    /// Creates `count` containers, runs a command in each and removes them; returns how long
    /// creating them took.
    pub(super) async fn idle(&self, count: usize, report: &Report) -> Result<Duration> {
        let start = Instant::now();
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.make(&self.with_cgroups).await?);
        }
        let made = start.elapsed();
        for live in &all {
            run_true(&live.agent, "idle").await?;
        }
        for live in &all {
            self.with_cgroups.destroy(&live.id).await?;
        }
        report.verdict(
            true,
            &format!(
                "{count} idle containers at once, made in {} ms",
                made.as_millis()
            ),
        );
        Ok(made)
    }
}

async fn run_true(agent: &Agent, exec_id: &str) -> Result<()> {
    let mut follow = agent.start(exec_id, &Command::new(["/bin/true"])).await?;
    expect_success(&mut follow).await
}

async fn expect_success(follow: &mut Follow) -> Result<()> {
    while let Some(event) = follow.next().await? {
        if let EventKind::Exit(exit) = &event.kind {
            ensure!(
                exit.cause == ExitCause::Exited && exit.code == Some(0),
                "{exit:?}"
            );
            return Ok(());
        }
    }
    bail!("the exec has no end")
}

fn new_id() -> Result<ContainerId> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(ContainerId::from_parts(
        u64::try_from(now.as_millis())?,
        random,
    ))
}
