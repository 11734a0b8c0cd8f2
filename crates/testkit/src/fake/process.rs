//! The agent's process on the host, and its descendants.
//!
//! A pid may be reused; together with its start time it identifies one process.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};

/// Passes for stopping processes that a tree starts while it is being stopped.
const STOP_ROUNDS_MAX: usize = 100;

/// How long a killed process may take to exit.
const GONE_TIMEOUT: Duration = Duration::from_mins(1);

/// Poll interval: it may not be our child, so there is no event.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pid: i32,
    start_time: u64,
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    zombie: bool,
    parent: i32,
    start_time: u64,
}

impl Process {
    /// The process that has this pid now.
    pub(super) fn now(pid: i32) -> Option<Self> {
        let start_time = Stat::read(pid)?.start_time;
        Some(Self { pid, start_time })
    }

    /// Parses what `to_text` wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (pid, start_time) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
        })
    }

    pub(super) fn to_text(self) -> String {
        format!("{} {}\n", self.pid, self.start_time)
    }

    /// Whether it runs; a zombie does not.
    pub(super) fn is_running(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.start_time == self.start_time && !stat.zombie)
    }

    /// Kills it and all its descendants.
    ///
    /// Each process is stopped when it is found, and all are killed once nothing new appears, so
    /// that none can start another unnoticed. Returns what was killed.
    pub(super) fn kill_tree(self) -> Vec<Self> {
        let mut tree = Vec::from([self]);
        self.signal(Signal::STOP);
        for _ in 0..STOP_ROUNDS_MAX {
            let new = below(&tree);
            if new.is_empty() {
                break;
            }
            for process in &new {
                process.signal(Signal::STOP);
            }
            tree.extend(new);
        }
        for process in &tree {
            process.signal(Signal::KILL);
        }
        tree
    }

    /// Reaps it if it is our child and has exited.
    pub(super) fn reap(self) {
        if let Some(pidfd) = self.pidfd() {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), options);
        }
    }

    /// Waits for its exit without a runtime, if it is our child.
    pub(super) fn wait_blocking(self) {
        if let Some(pidfd) = self.pidfd() {
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }

    /// Waits for its exit.
    pub(super) async fn ended(self) {
        while self.is_running() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    pub(super) fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_running()) {
            let _ = kill_process(pid, signal);
        }
    }

    fn pidfd(self) -> Option<OwnedFd> {
        let pidfd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Only now is it certain that the pid was not reused before it was opened.
        let same = Stat::read(self.pid)?.start_time == self.start_time;
        same.then_some(pidfd)
    }
}

/// Waits until none of them runs; false at the timeout.
pub(super) async fn all_gone(processes: &[Process]) -> bool {
    let gone = async {
        for process in processes {
            process.ended().await;
        }
    };
    tokio::time::timeout(GONE_TIMEOUT, gone).await.is_ok()
}

/// Children of the tree that are not in it yet.
fn below(tree: &[Process]) -> Vec<Process> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, Stat::read(pid)?))) {
            all.insert(pid, stat);
        }
    }
    let known = |pid: &i32| tree.iter().any(|process| process.pid == *pid);
    let leads_to_tree = |pid: &i32| {
        let mut above = all.get(pid).map(|stat| stat.parent);
        while let Some(pid) = above.filter(|pid| *pid > 1) {
            if known(&pid) {
                return true;
            }
            above = all.get(&pid).map(|stat| stat.parent);
        }
        false
    };
    let new = all
        .iter()
        .filter(|(pid, stat)| !stat.zombie && !known(pid) && leads_to_tree(pid));
    new.map(|(pid, stat)| Process {
        pid: *pid,
        start_time: stat.start_time,
    })
    .collect()
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&text)
    }

    /// The process chooses its own name, in parentheses, which may contain anything.
    fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // The start time is field 22; fields 3 and 4 were read above.
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self {
            zombie: matches!(state, "Z" | "X"),
            parent,
            start_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_running_and_can_be_written_down() {
        let us = Process::now(std::process::id().cast_signed()).unwrap();
        assert!(us.is_running());
        assert_eq!(Process::parse(&us.to_text()), Some(us));
    }

    #[test]
    fn a_hostile_name_does_not_confuse_the_parser() {
        let text = b"42 (a) S 9 (b) Z 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 123 0";
        let stat = Stat::parse(text).unwrap();
        assert!(stat.zombie);
        assert_eq!((stat.parent, stat.start_time), (7, 123));
    }

    #[test]
    fn killing_a_tree_ends_what_left_its_session() {
        let script = "setsid sleep 1000 & sleep 1000 & echo; wait";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        let top = Process::now(child.id().cast_signed()).unwrap();
        let tree = top.kill_tree();
        assert!(tree.len() >= 3, "{tree:?}");
        child.wait().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        assert!(runtime.block_on(all_gone(&tree)));
    }
}
