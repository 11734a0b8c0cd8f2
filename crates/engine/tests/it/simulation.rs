//! A small workload on the fake engine with faults from a seed.
//!
//! Whatever goes wrong: no byte of output is lost or duplicated, and nothing is left in the end. A
//! failure prints the seed; `HOTCELL_SEED=N` runs only that one.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use hotcell_agent_client::{Agent, AgentError, Command, EventKind, Output};
use hotcell_domain::{ContainerId, ContainerSpec, ImageRef, Phase, Policy};
use hotcell_engine::{Engine, EngineError};
use hotcell_testkit::fake::{FAULTS_MAX, Fake, Faults, each_seed};

const SEEDS: u64 = 200;

/// The deadline of one seed; only a hanging one reaches it.
const SEED_TIMEOUT: Duration = Duration::from_mins(5);

/// Every fault costs at most one attempt, so one more than there are faults is enough.
const ATTEMPTS_MAX: u32 = FAULTS_MAX + 2;

/// Lines of output: more bytes than a cut stream carries.
const LINES: usize = 20_000;

/// How often each fault happened.
#[derive(Debug, Default)]
struct Tally {
    creates_failed: u32,
    opens_failed: u32,
    streams_lost: u32,
    containers_died: u32,
    lists_wrong: u32,
    destroys_failed: u32,
}

#[test]
fn faults_lose_no_byte_and_leave_nothing() {
    let mut tally = Tally::default();
    let all_ran = each_seed(SEEDS, "hotcell-engine", |seed| run(seed, &mut tally));
    eprintln!("{tally:?}");
    if all_ran {
        assert_each_happened(&tally);
    }
}

/// Otherwise the test would prove nothing.
fn assert_each_happened(tally: &Tally) {
    assert!(tally.creates_failed > 0);
    assert!(tally.opens_failed > 0);
    assert!(tally.streams_lost > 0);
    assert!(tally.containers_died > 0);
    assert!(tally.lists_wrong > 0);
    assert!(tally.destroys_failed > 0);
}

fn run(seed: u64, tally: &mut Tally) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let state = tempfile::tempdir()?;
    let faults = Faults::from_seed(seed);
    let engine = Fake::new(
        hotcell_testkit::agent::program(),
        state.path().to_owned(),
        faults,
    );
    let id = unique_id(seed);
    let timed = async {
        let story = live(&engine, &id, tally);
        tokio::time::timeout(SEED_TIMEOUT, story).await?
    };
    let lived = runtime.block_on(timed);
    let left = leftovers(&state, &id);
    if lived.is_err() {
        // Leave nothing behind, even after a failure.
        let _ = runtime.block_on(end(&engine, &id, tally));
    }
    lived?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

/// Unique on this host, even if the same test runs in another process.
fn unique_id(seed: u64) -> ContainerId {
    let mut random = [0; 10];
    random[..4].copy_from_slice(&std::process::id().to_be_bytes());
    ContainerId::from_parts(seed, random)
}

async fn live(engine: &Fake, id: &ContainerId, tally: &mut Tally) -> anyhow::Result<()> {
    create(engine, id, tally).await?;
    let mut seen = Seen::default();
    let died = follow(engine, id, &mut seen, tally).await?;
    let lines: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
    let expected = lines.join("\n") + "\n";
    if died {
        tally.containers_died += 1;
        ensure!(
            expected.as_bytes().starts_with(&seen.stdout),
            "not a beginning"
        );
    } else {
        ensure!(
            expected.as_bytes() == seen.stdout,
            "bytes were lost or doubled"
        );
    }
    look(engine, id, tally).await?;
    end(engine, id, tally).await
}

/// Creates, with retries. A failed attempt leaves nothing.
async fn create(engine: &Fake, id: &ContainerId, tally: &mut Tally) -> anyhow::Result<()> {
    let spec = Policy::default().admit(ContainerSpec::new(ImageRef::Host))?;
    for _ in 0..ATTEMPTS_MAX {
        match hotcell_engine::fetch_and_create(engine, id, &spec).await {
            Ok(container) => {
                ensure!(container.phase == Phase::Running, "{container:?}");
                return Ok(());
            }
            Err(_) => tally.creates_failed += 1,
        }
        let inspected = engine.inspect(id).await;
        let nothing = matches!(inspected, Err(EngineError::NotFound { .. }));
        ensure!(nothing, "a failed create left {inspected:?}");
    }
    bail!("it could not be created")
}

/// What a follower has received.
#[derive(Default)]
struct Seen {
    stdout: Vec<u8>,
    last_seq: u64,
}

/// Runs the command to its end, over as many streams as it takes; true if the container died
/// instead.
async fn follow(
    engine: &Fake,
    id: &ContainerId,
    seen: &mut Seen,
    tally: &mut Tally,
) -> anyhow::Result<bool> {
    for _ in 0..ATTEMPTS_MAX {
        match engine.open(id).await {
            Ok(stream) => match follow_stream(stream, id, seen).await {
                Ok(()) => return Ok(false),
                Err(AgentError::Lost) => tally.streams_lost += 1,
                Err(error) => return Err(error).context("a stream broke in another way"),
            },
            Err(_) => tally.opens_failed += 1,
        }
        if engine.inspect(id).await?.phase != Phase::Running {
            return Ok(true);
        }
    }
    bail!("the exec could not be followed to its end")
}

async fn follow_stream(
    stream: hotcell_engine::AgentStream,
    id: &ContainerId,
    seen: &mut Seen,
) -> Result<(), AgentError> {
    let agent = Agent::connect(stream).await?;
    let mut follow = match seen.last_seq {
        0 => agent.start("counting", &counting(id)).await?,
        last_seq => agent.resume("counting", last_seq).await?,
    };
    while let Some(event) = follow.next().await? {
        seen.last_seq = event.seq;
        match event.kind {
            EventKind::Started(_) | EventKind::Exit(_) => {}
            EventKind::Output(Output::Stdout, data) => seen.stdout.extend_from_slice(&data),
            EventKind::Output(Output::Stderr, _) => return Err(AgentError::Protocol("stderr")),
        }
        follow.ack(event.seq);
    }
    Ok(())
}

/// A counting command, with the container's id in its arguments, so that its processes can be
/// found.
fn counting(id: &ContainerId) -> Command {
    let script = format!("i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); done");
    Command::new(["/bin/sh", "-c", &script, id.as_str()])
}

/// A list may be wrong once, but not twice in the same way for ever.
async fn look(engine: &Fake, id: &ContainerId, tally: &mut Tally) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        let listed = engine.list().await?;
        if listed.len() == 1 && listed[0].id == *id {
            return Ok(());
        }
        tally.lists_wrong += 1;
    }
    bail!("the list stays wrong")
}

/// Destroys, with retries.
async fn end(engine: &Fake, id: &ContainerId, tally: &mut Tally) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        match engine.destroy(id).await {
            Ok(()) => {}
            Err(EngineError::NotFound { .. }) => return Ok(()),
            Err(_) => tally.destroys_failed += 1,
        }
    }
    bail!("it could not be destroyed")
}

/// Files in the state directory, and processes that name the container.
fn leftovers(state: &tempfile::TempDir, id: &ContainerId) -> Vec<String> {
    let files = fs::read_dir(state.path()).into_iter().flatten().flatten();
    let mut left: Vec<_> = files
        .map(|file| file.path().display().to_string())
        .collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(id.as_str()) {
            left.push(line);
        }
    }
    left
}
