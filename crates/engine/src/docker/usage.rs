//! Memory usage of a container, and how often it ran out of memory.
//!
//! If the container's processes run on this host, two small files of the kernel contain both.
//! Otherwise the engine is asked, which counts the events that it remembers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{EventsOptionsBuilder, StatsOptionsBuilder};
use futures_util::StreamExt as _;
use hotcell_domain::ContainerId;

use super::client::Client;
use super::names;

/// The mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Timeout for counting events of the engine.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much later than the kill an engine may record it.
const OOM_EVENT_LAG: Duration = Duration::from_millis(300);

/// Most events that are counted; engines remember fewer.
const EVENTS_MAX: u64 = 1024;

/// How far an engine's clock may be behind ours.
const CLOCK_SKEW_SECONDS_MAX: u64 = 24 * 60 * 60;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) oom_kills: u64,
    pub(super) memory_bytes: Option<u64>,
    /// Known if the container runs on this host in a cgroup of version 2.
    pub(super) cpu_time: Option<Duration>,
}

/// The PIDs of inspected containers, which the engine's list does not contain.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: Mutex<HashMap<ContainerId, (i32, String)>>,
}

impl Processes {
    /// Remembers the first process of a container.
    pub(super) fn note(&self, id: &ContainerId, found: &ContainerInspectResponse) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match process(found) {
            Some((pid, name)) => known.insert(id.clone(), (pid, name.to_owned())),
            None => known.remove(id),
        };
    }

    /// Forgets a container.
    pub(super) fn forget(&self, id: &ContainerId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(id);
    }

    /// Usage of a container, if it runs on this host and was inspected before.
    pub(super) fn usage(&self, id: &ContainerId) -> Option<Usage> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (pid, name) = known.get(id).cloned()?;
        drop(known);
        of_process(pid, &name)
    }
}

/// A container's first process and the engine's id of the container; `None` if it does not run.
pub(super) fn process(found: &ContainerInspectResponse) -> Option<(i32, &str)> {
    let pid = found.state.as_ref()?.pid.filter(|pid| *pid > 0)?;
    Some((i32::try_from(pid).ok()?, found.id.as_deref()?))
}

/// Whether a process of this host is in a cgroup of that container.
pub(super) fn is_in_group(pid: i32, id: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
    groups.is_ok_and(|groups| memory_group(&groups, id).is_some())
}

/// Usage of a container; fields are `None` if it does not run or the value is unknown.
pub(super) async fn of(client: &Client, found: &ContainerInspectResponse) -> Usage {
    let Some((pid, id)) = process(found) else {
        return Usage::default();
    };
    let local = client.host().may_be_local().then(|| of_process(pid, id));
    match local.flatten() {
        Some(usage) => usage,
        None => ask(client, id, found).await,
    }
}

/// Usage as this host's kernel reports it, if the process runs on this host in a cgroup of that
/// container.
fn of_process(pid: i32, id: &str) -> Option<Usage> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let (directory, is_v1) = memory_group(&groups, id)?;
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    let (events, current) = if is_v1 {
        (read("memory.oom_control")?, read("memory.usage_in_bytes"))
    } else {
        (read("memory.events")?, read("memory.current"))
    };
    Some(Usage {
        oom_kills: counter(&events, "oom_kill")?,
        memory_bytes: current.and_then(|bytes| bytes.trim().parse().ok()),
        cpu_time: cpu_time(&read("cpu.stat").unwrap_or_default()),
    })
}

fn cpu_time(stat: &str) -> Option<Duration> {
    counter(stat, "usage_usec").map(Duration::from_micros)
}

/// The directory of a container's memory cgroup, and whether it is of the first version.
fn memory_group(groups: &str, id: &str) -> Option<(PathBuf, bool)> {
    let mut found = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if !path.contains(id) || path.contains("..") {
            continue;
        }
        let below = path.trim_start_matches('/');
        if controllers
            .split(',')
            .any(|controller| controller == "memory")
        {
            return Some((Path::new(CGROUPS).join("memory").join(below), true));
        }
        if controllers.is_empty() {
            found = Some((Path::new(CGROUPS).join(below), false));
        }
    }
    found
}

/// The number after a name in a file of lines `name number`.
fn counter(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

async fn ask(client: &Client, id: &str, found: &ContainerInspectResponse) -> Usage {
    let counted = tokio::time::timeout(COUNT_TIMEOUT, async {
        tokio::join!(memory_bytes(client, id), oom_events(client, id, found))
    });
    let (memory_bytes, oom_kills) = counted.await.unwrap_or_default();
    Usage {
        oom_kills: oom_kills.unwrap_or(0),
        memory_bytes,
        cpu_time: None,
    }
}

async fn memory_bytes(client: &Client, id: &str) -> Option<u64> {
    let options = StatsOptionsBuilder::default()
        .stream(false)
        .one_shot(true)
        .build();
    let api = client.api().await.ok()?;
    let stats = Box::pin(api.stats(id, Some(options))).next().await?;
    stats.ok()?.memory_stats?.usage
}

/// Counts the events that the engine remembers. Its clock may differ from ours, so no end time is
/// given: the count ends at the first pause.
async fn oom_events(client: &Client, id: &str, found: &ContainerInspectResponse) -> Option<u64> {
    let labels = found.config.as_ref()?.labels.as_ref()?;
    let made: u64 = labels.get(names::MADE_LABEL)?.parse().ok()?;
    let since = made.saturating_sub(CLOCK_SKEW_SECONDS_MAX).to_string();
    let filters = [("container", id), ("event", "oom")]
        .map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
    let options = EventsOptionsBuilder::default()
        .since(&since)
        .filters(&filters.into())
        .build();
    let api = client.api().await.ok()?;
    let mut events = Box::pin(api.events(Some(options)));
    let mut count = 0;
    while count < EVENTS_MAX {
        match tokio::time::timeout(OOM_EVENT_LAG, events.next()).await {
            Ok(Some(Ok(_))) => count += 1,
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_cgroup_is_found_in_both_versions() {
        let v1 = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n";
        let mount = PathBuf::from("/sys/fs/cgroup/memory/docker/abc");
        assert_eq!(memory_group(v1, "abc"), Some((mount, true)));
        let v2 = "0::/system.slice/docker-abc.scope\n";
        let mount = PathBuf::from("/sys/fs/cgroup/system.slice/docker-abc.scope");
        assert_eq!(memory_group(v2, "abc"), Some((mount, false)));
    }

    #[test]
    fn a_process_in_another_cgroup_is_not_the_containers() {
        assert_eq!(memory_group("0::/user.slice\n", "abc"), None);
        assert_eq!(memory_group("0::/../abc\n", "abc"), None);
    }

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(counter(text, "oom_kill"), Some(3));
        assert_eq!(counter(text, "oom"), None);
    }
}
