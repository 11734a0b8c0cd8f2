//! The cgroups of one container: statistics, kill, removal.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// How long [`ContainerCgroups::remove`] waits for killed members to exit.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval while a killed cgroup still has members.
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// The cgroups of one container. Serializable, so that a later server can remove cgroups that it
/// did not create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerCgroups {
    pub(super) v1: Vec<PathBuf>,
    pub(super) v2: Option<PathBuf>,
}

impl ContainerCgroups {
    /// For a container without cgroups: nothing is limited, read or removed.
    pub fn none() -> Self {
        Self::default()
    }

    /// True if the container runs without cgroups.
    pub fn is_none(&self) -> bool {
        self.v1.is_empty() && self.v2.is_none()
    }

    /// How many processes the kernel's OOM killer has killed in this container.
    pub fn oom_kills(&self) -> u64 {
        self.dirs()
            .filter_map(|dir| {
                let events = fs::read_to_string(dir.join("memory.events"))
                    .or_else(|_| fs::read_to_string(dir.join("memory.oom_control")))
                    .ok()?;
                counter(&events, "oom_kill")
            })
            .sum()
    }

    /// Current memory usage in bytes; `None` if no cgroup accounts for it.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.dirs().find_map(|dir| {
            let text = fs::read_to_string(dir.join("memory.current"))
                .or_else(|_| fs::read_to_string(dir.join("memory.usage_in_bytes")))
                .ok()?;
            text.trim().parse().ok()
        })
    }

    /// Processor time used so far; `None` if no cgroup accounts for it.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.dirs().find_map(|dir| {
            if let Ok(stat) = fs::read_to_string(dir.join("cpu.stat"))
                && let Some(micros) = counter(&stat, "usage_usec")
            {
                return Some(Duration::from_micros(micros));
            }
            let nanos = fs::read_to_string(dir.join("cpuacct.usage")).ok()?;
            nanos.trim().parse().ok().map(Duration::from_nanos)
        })
    }

    /// Kills every member. On cgroup v1 a process that forks at this moment can be missed; that is
    /// harmless, because the container's init takes its descendants with it, and `remove` kills
    /// again.
    pub fn kill(&self) -> io::Result<()> {
        for dir in self.dirs() {
            let killed = fs::write(dir.join("cgroup.kill"), "1");
            if killed.is_err() && dir.exists() {
                kill_each(dir)?;
            }
        }
        Ok(())
    }

    /// Kills the remaining members and removes the cgroups. Idempotent. On `Err` the members did
    /// not exit in time and the cgroups still exist.
    pub fn remove(&self) -> io::Result<()> {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        self.dirs()
            .try_for_each(|dir| self.remove_one(dir, deadline))
    }

    fn remove_one(&self, dir: &Path, deadline: Instant) -> io::Result<()> {
        loop {
            match fs::remove_dir(dir) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.raw_os_error() != Some(libc::EBUSY) => return Err(error),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => self.kill()?,
            }
            thread::sleep(REMOVE_PAUSE);
        }
    }

    /// Adds a v1 cgroup unless it is listed already: several controllers can share one hierarchy.
    pub(super) fn add_v1(&mut self, dir: PathBuf) {
        if !self.v1.contains(&dir) {
            self.v1.push(dir);
        }
    }

    /// Opens the `tasks` files of the v1 cgroups; a task joins by writing `0`.
    pub(crate) fn v1_tasks(&self) -> io::Result<Vec<OwnedFd>> {
        self.v1
            .iter()
            .map(|dir| {
                Ok(OpenOptions::new()
                    .write(true)
                    .open(dir.join("tasks"))?
                    .into())
            })
            .collect()
    }

    /// Opens the v2 cgroup, for `CLONE_INTO_CGROUP`.
    pub(crate) fn v2_dir(&self) -> io::Result<Option<OwnedFd>> {
        self.v2
            .as_ref()
            .map(|dir| Ok(File::open(dir)?.into()))
            .transpose()
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.v1.iter().chain(&self.v2).map(PathBuf::as_path)
    }
}

fn kill_each(dir: &Path) -> io::Result<()> {
    let members = match fs::read_to_string(dir.join("cgroup.procs")) {
        Ok(members) => members,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for pid in members
        .lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
    {
        // It may have exited meanwhile. Its id cannot have gone to a stranger: only our processes
        // are members.
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(())
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oom_counter_is_found_by_its_whole_name() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let v2 = "low 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(counter(v1, "oom_kill"), Some(3));
        assert_eq!(counter(v2, "oom_kill"), Some(2));
        assert_eq!(counter("", "oom_kill"), None);
    }

    #[test]
    fn no_place_is_removed_at_once_and_again() {
        let place = ContainerCgroups {
            v1: vec![PathBuf::from("/sys/fs/cgroup/absent/absent")],
            v2: None,
        };
        assert!(place.remove().is_ok() && place.remove().is_ok() && place.kill().is_ok());
        assert_eq!((place.oom_kills(), place.memory_bytes()), (0, None));
    }
}
