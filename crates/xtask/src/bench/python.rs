//! A Python script in a running container, with a new and with a warm interpreter, compared with
//! Python on the host.

use std::process::{Command as HostCommand, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hotcell_agent_client::{Agent, Command, EventKind, Interpreter, WriteOptions};

use super::engine_calls::EngineCalls;
use super::memory;
use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::Samples;
use super::timed;

const ROUNDS: usize = 100;

/// Attempts until the warm interpreter is ready.
const ATTEMPTS_MAX: usize = 100;

/// Memory of the zygote and its spare: their private pages, and those that they share.
const MEMORY_BYTES_MAX: u64 = 12 << 20;

const PRINT: &str = "print(1)\n";
const NUMPY: &str = "import numpy; print(numpy.zeros(3))\n";
const TELL: &str = "print('hotcell' in open('/proc/self/cmdline').read())\n";

const HOST: &str = "python3 on the host: print(1)";
const NEW: &str = "exec print(1), new interpreter";
const WARM: &str = "exec print(1), warmed interpreter";
const NUMPY_HOST: &str = "python3 on the host: numpy";
const NUMPY_WARM: &str = "exec numpy, warmed interpreter";

pub(super) fn run(report: &Report, readme: &mut Readme) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    runtime.block_on(async {
        let calls = EngineCalls::open()?;
        let outcome = measure(&calls, report, readme).await;
        calls.close().await?;
        outcome
    })
}

async fn measure(calls: &EngineCalls, report: &Report, readme: &mut Readme) -> Result<()> {
    let live = calls.live().await?;
    let agent = live.agent();
    for (name, source) in [("prints", PRINT), ("arrays", NUMPY), ("tells", TELL)] {
        let source = Bytes::from_static(source.as_bytes());
        let path = format!("{name}.py");
        agent
            .write_all(path.as_bytes(), source, WriteOptions::default())
            .await?;
    }
    if !until_warm(agent).await? {
        report.unmeasured("Python (no interpreter was warmed up)");
        return Ok(());
    }
    let has_numpy = on_host(NUMPY).is_ok();
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        samples.add(HOST, timed(|| on_host(PRINT))?);
        samples.add(NEW, script(agent, "prints", None).await?.0);
        samples.add(
            WARM,
            script(agent, "prints", Some(Interpreter::Python)).await?.0,
        );
        if has_numpy {
            samples.add(NUMPY_HOST, timed(|| on_host(NUMPY))?);
            let warm = script(agent, "arrays", Some(Interpreter::Python)).await?;
            samples.add(NUMPY_WARM, warm.0);
        }
    }
    samples.print();
    samples.at_most_times(report, WARM, 0.4, HOST);
    samples.at_most_times(report, NUMPY_WARM, 0.3, NUMPY_HOST);
    memory_of_zygote(live.id(), has_numpy, report)?;
    readme.table();
    let of = |row| p50(&samples, row);
    let beside = format!("{} by a new one; {} on the host", of(NEW), of(HOST));
    readme.row("`print(1)` by a warmed Python", &of(WARM), &beside);
    let beside = format!("{} on the host", of(NUMPY_HOST));
    readme.row(
        "`import numpy` by a warmed Python",
        &of(NUMPY_WARM),
        &beside,
    );
    Ok(())
}

/// Anonymous memory of the agent's descendants, each page counted once.
fn memory_of_zygote(id: &str, has_numpy: bool, report: &Report) -> Result<()> {
    let agent = memory::agent_of(id)?;
    let bytes = memory::anonymous_bytes_below(agent)?;
    let sentence = format!(
        "zygote and spare: {} KiB of their own, at most 12288",
        bytes >> 10
    );
    if has_numpy {
        eprintln!("{sentence} without numpy, which is here");
        report.unmeasured("memory of a zygote without numpy");
    } else {
        report.verdict(bytes <= MEMORY_BYTES_MAX, &sentence);
    }
    Ok(())
}

fn on_host(source: &str) -> Result<()> {
    let status = HostCommand::new("python3")
        .args(["-c", source])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("run python3")?;
    ensure!(status.success(), "python3 failed");
    Ok(())
}

async fn until_warm(agent: &Agent) -> Result<bool> {
    for _ in 0..ATTEMPTS_MAX {
        let (_, output) = script(agent, "tells", Some(Interpreter::Python)).await?;
        if output == b"True\n" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs a script to its end.
async fn script(
    agent: &Agent,
    name: &str,
    warm: Option<Interpreter>,
) -> Result<(Duration, Vec<u8>)> {
    let root = &agent.hello().root;
    let mut command = Command::new(["python3".to_owned(), format!("{root}/{name}.py")]);
    command
        .env
        .push((b"HOME".to_vec(), root.clone().into_bytes()));
    command.cwd = root.clone().into_bytes();
    command.warm_interpreter = warm;
    let mut output = Vec::new();
    let start = Instant::now();
    let mut follow = agent.start("script", &command).await?;
    let mut code = None;
    while let Some(event) = follow.next().await? {
        match event.kind {
            EventKind::Started(_) => {}
            EventKind::Output(_, data) => output.extend_from_slice(&data),
            EventKind::Exit(exit) => code = exit.code,
        }
        follow.ack(event.seq);
    }
    let time = start.elapsed();
    agent.forget("script").await?;
    ensure!(code == Some(0), "{name}.py ended with {code:?}");
    Ok((time, output))
}
