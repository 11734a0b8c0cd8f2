//! When something dies, and what is looked at afterwards.

use std::path::Path;
use std::time::Duration;

use hotcell_agent_client::Agent;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, ImageRef, Lifetime, Phase, Policy};
use hotcell_engine::{Embedded, Engine};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{deadline, engine, eventually, leftovers, pids};

/// Random numbers from a seed. The message of a failure contains the seed, so it can be repeated.
pub(crate) struct Moments(u64);

impl Moments {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % end
    }

    /// Waits for a random time.
    pub(crate) async fn wait(&mut self, longest: Duration) {
        let micros = u64::try_from(longest.as_micros()).expect("a short while");
        tokio::time::sleep(Duration::from_micros(self.below(micros))).await;
    }
}

/// A container with the defaults.
pub(crate) fn spec(lifetime: Lifetime) -> Admitted<ContainerSpec> {
    let mut spec = ContainerSpec::new(ImageRef::Host);
    spec.lifetime = lifetime;
    let policy = Policy {
        allow_rootfs: false,
        allow_root: false,
        ..Policy::default()
    };
    policy.admit(spec).expect("this policy admits it")
}

/// A new connection to a container's agent.
pub(crate) async fn connect(engine: &Embedded, id: &ContainerId) -> Agent {
    let stream = engine.open(id).await.expect("its socket is there");
    Agent::connect(stream).await.expect("its agent answers")
}

/// Ends a process at once.
pub(crate) fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended by itself.
    let _ = kill_process(pid.expect("a process id"), Signal::KILL);
}

/// A container's agent, as the host numbers it.
pub(crate) fn agent_pid(id: &ContainerId) -> u32 {
    let wanted = format!("hotcell-agent\0init\0--container\0{id}\0");
    let is_agent = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.starts_with(wanted.as_bytes())
    };
    pids().into_iter().find(is_agent).expect("the agent lives")
}

/// The parent of a process, and 0 if there is no such process.
pub(crate) fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0)
}

/// Opens the home as the next server would: everything in it is listed, what runs
/// answers, all of it can be destroyed, and nothing of `ids` is left.
pub(crate) async fn take_over(home: &Path, ids: &[ContainerId], seed: u64) {
    let engine = engine(home);
    engine
        .list()
        .await
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    engine
        .sweep(
            hotcell_engine::Garbage::Containers,
            hotcell_engine::SweepMode::Remove,
        )
        .await
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    for container in engine.list().await.unwrap() {
        // One whose destruction was begun is stopped, and stays until it is asked again.
        if container.phase != Phase::Stopped {
            assert_eq!(container.phase, Phase::Running, "seed {seed}");
            answers_or_ends(&engine, &container.id, seed).await;
        }
        engine
            .destroy(&container.id)
            .await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    for id in ids {
        nothing_left(id, home, seed).await;
    }
    let left: Vec<_> = std::fs::read_dir(home.join("containers"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "seed {seed}: {left:?}");
}

/// A container that runs answers; or it is just being ended by the launcher of the dead
/// server, which may be at work for a moment longer.
async fn answers_or_ends(engine: &Embedded, id: &ContainerId, seed: u64) {
    if let Ok(stream) = engine.open(id).await
        && let Ok(agent) = Agent::connect(stream).await
        && agent.stat(b"", false).await.is_ok()
    {
        return;
    }
    let ended = tokio::time::timeout(deadline(), engine.exited(id)).await;
    let ended = ended.unwrap_or_else(|_| panic!("seed {seed}: {id} runs and does not answer"));
    ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// Waits until nothing of a container is left: the launcher of a dead server may be at
/// work for a moment longer.
pub(crate) async fn nothing_left(id: &ContainerId, home: &Path, seed: u64) {
    eventually(&format!("nothing is left of {id}, seed {seed}"), || async {
        let left = leftovers(id, home);
        if !left.is_empty() {
            eprintln!("seed {seed}: {left:?}");
        }
        left.is_empty()
    })
    .await;
}
