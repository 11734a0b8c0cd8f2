//! Limits of a container, as far as its engine claims to enforce them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hotcell_agent_client::{ExitCause, Feature};
use hotcell_domain::{Bytes, CpuMillis, Pids};

use hotcell_engine::Enforcement;

use super::container::{Live, TestContainer};
use super::run::slowed;
use super::{Outcome, Subject, claimed};

const MEMORY_BYTES: u64 = 48 << 20;

const PIDS: u32 = 24;

const DISK_BYTES: u64 = 16 << 20;

/// Processes that the script tries to start: more than allowed.
const FORKS: u32 = 60;

const CPU_MILLIS: u32 = 300;

/// How long CPU time is measured: many periods of the scheduler's quota.
const CPU_WINDOW: Duration = Duration::from_secs(3);

/// Tolerated excess over the quota, for bursts and rounding.
const CPU_TOLERANCE: f64 = 1.3;

/// Doubles a variable of the shell until memory runs out.
const HOG: &str = "x=$(head -c 1000000 /dev/zero | tr '\\0' x); while :; do x=$x$x; done";

/// Ends a case whose limit is not enforced on this host.
async fn unlimited(container: TestContainer<'_>, what: &str) -> Outcome {
    container.end().await?;
    let reason = format!("nothing limits {what} on this host");
    crate::skip(crate::Need::Cgroups, &reason);
    Ok(())
}

pub(super) async fn a_memory_hog_is_killed_and_the_container_lives(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.limits, "to limit") {
        return Ok(());
    }
    let memory = Bytes::new(MEMORY_BYTES)?;
    let container = TestContainer::make_with(subject, |spec| spec.limits.memory = memory).await?;
    match container.info.enforced.memory {
        Enforcement::None => {
            return unlimited(container, "memory").await;
        }
        Enforcement::Rlimit => eprintln!("memory is limited for each process only"),
        Enforcement::Cgroup | Enforcement::ProjectQuota | Enforcement::Watched => {}
    }
    let exit = container.shell(HOG).await?.exit;
    assert_eq!(exit.cause, ExitCause::Exited);
    assert_ne!(exit.code, Some(0));
    // Resident pages shared with others are not charged to it.
    let resident_max = MEMORY_BYTES + MEMORY_BYTES / 2;
    assert!(exit.usage.max_rss_bytes <= resident_max, "{exit:?}");
    let now = subject.engine.inspect(&container.id).await?;
    if container.info.enforced.memory == Enforcement::Cgroup {
        assert_eq!(exit.signal, Some(9));
        assert!(now.oom_kills >= 1, "{now:?}");
        let used = now.memory_bytes.context("a cgroup counts memory")?;
        assert!(used <= MEMORY_BYTES, "{used}");
    }
    assert_eq!(container.said("echo alive").await?, "alive\n");
    container.end().await
}

pub(super) async fn processes_are_bounded(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.limits, "to limit") {
        return Ok(());
    }
    let pids = Pids::new(PIDS)?;
    let container = TestContainer::make_with(subject, |spec| spec.limits.pids = pids).await?;
    match container.info.enforced.pids {
        Enforcement::None => {
            return unlimited(container, "processes").await;
        }
        Enforcement::Rlimit => eprintln!("processes are limited for the container's user"),
        Enforcement::Cgroup | Enforcement::ProjectQuota | Enforcement::Watched => {}
    }
    let script =
        format!("i=0; while [ $i -lt {FORKS} ]; do sleep 1000 & i=$((i+1)); echo $i; done");
    let live = Live::start(&container.agent, &container.sh(&script)).await?;
    let exec_id = live.exec_id.clone();
    let ran = live.end().await?;
    let started = ran.stdout_text().lines().count();
    ensure!(started > 0, "nothing was started: {}", ran.stderr_text());
    assert!(started < PIDS as usize, "{started} of {PIDS}");
    // The container is full and still responds.
    container.agent.cancel(&exec_id, Duration::ZERO).await?;
    assert_eq!(container.said("echo alive").await?, "alive\n");
    container.end().await
}

/// The disk usage of a watched container is seen, so that it can be ended; with a quota, writes
/// fail.
pub(super) async fn disk_space_is_bounded_or_seen(subject: &Subject) -> Outcome {
    let disk = Bytes::new(DISK_BYTES)?;
    let container = TestContainer::make_with(subject, |spec| spec.limits.disk = disk).await?;
    if container.is_older(Feature::Disk) {
        return container.end().await;
    }
    let before = container.disk_use().await?;
    ensure!(!before.is_busy && before.bytes < DISK_BYTES, "{before:?}");
    let script = format!(
        "mkdir d; : >d/one; : >d/two; head -c {} /dev/zero >full; echo $?; sync",
        2 * DISK_BYTES
    );
    let said = container.said(&script).await?;
    match container.info.enforced.disk {
        Enforcement::ProjectQuota => assert_ne!(said, "0\n"),
        Enforcement::Watched => {
            assert_eq!(said, "0\n");
            let used = container.disk_use().await?;
            ensure!(used.bytes >= 2 * DISK_BYTES, "{used:?}");
            ensure!(used.files == before.files + 4, "{before:?} {used:?}");
            let mut live =
                Live::start(&container.agent, &container.sh("echo ready; sleep 1000")).await?;
            live.until("ready").await?;
            ensure!(container.disk_use().await?.is_busy, "something runs");
            container.agent.end_execs().await?;
            assert_eq!(live.end().await?.exit.cause, ExitCause::Cancelled);
            ensure!(!container.disk_use().await?.is_busy, "nothing runs");
        }
        Enforcement::Cgroup | Enforcement::Rlimit | Enforcement::None => {
            anyhow::bail!(
                "nothing limits its disk space: {:?}",
                container.info.enforced
            )
        }
    }
    container.end().await
}

pub(super) async fn processor_time_is_bounded(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.limits, "to limit") {
        return Ok(());
    }
    let cpus = CpuMillis::new(CPU_MILLIS)?;
    let container = TestContainer::make_with(subject, |spec| spec.limits.cpus = cpus).await?;
    if container.info.enforced.cpus != Enforcement::Cgroup {
        return unlimited(container, "processor time").await;
    }
    let script = "echo ready; busy() { while [ ! -e stop ]; do :; done; }; busy & busy; wait";
    let mut live = Live::start(&container.agent, &container.sh(script)).await?;
    live.until("ready").await?;
    let began = Instant::now();
    tokio::time::sleep(slowed(CPU_WINDOW)).await;
    container.said(": > stop").await?;
    let exit = live.end().await?.exit;
    ensure!(began.elapsed() >= CPU_WINDOW, "the window was too short");
    let used = (exit.usage.user + exit.usage.system).as_secs_f64();
    let share = used / exit.usage.wall.as_secs_f64();
    let quota = f64::from(CPU_MILLIS) / 1000.0;
    eprintln!("used {share:.2} of a core with a quota of {quota:.2}");
    assert!(share <= quota * CPU_TOLERANCE, "{share:.2} of {quota:.2}");
    container.end().await
}
