//! The keeper: one small process per exec, between the agent and the leader.
//!
//! It is a child subreaper, so double-forked processes of the exec are reparented to it and never
//! to the agent. It has its own memory, its own process group, all signals blocked and one
//! descriptor, the status pipe. It exits when it has no children left, so an exited keeper means
//! that nothing is left of its exec.
//!
//! The code that runs in the child (from [`keep`] on) allocates nothing and takes no lock.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Uid, set_child_subreaper, setpgid};
use rustix::thread::set_name;

use super::leader::{Failure, become_program, drop_capabilities};
use super::record::{LaunchStep, Record, WaitStatus};
use crate::sys::{self, CStrings, InChild};

/// Added to the leader's OOM score, so that the kernel kills it before the agent.
const LEADER_OOM_SCORE_ADJ: &[u8] = b"500";

/// All that a leader needs, prepared before the fork.
pub struct Launch {
    /// Including `argv[0]`.
    pub argv: CStrings,
    pub env: CStrings,
    /// Paths to try for the program, in order.
    pub candidates: Vec<CString>,
    pub cwd: CString,
    /// `None`: the agent's own user.
    pub user: Option<User>,
    /// Memory limit of each of its processes.
    pub data_bytes_max: Option<u64>,
    /// The leader's ends of the pipes or the terminal.
    pub stdio: Stdio,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: Uid,
    /// Its only group: there are no supplementary ones.
    pub gid: Gid,
}

/// The leader's descriptors 0, 1 and 2. The originals have `FD_CLOEXEC`.
pub struct Stdio {
    pub stdin: OwnedFd,
    /// The terminal, if there is one.
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Whether `stdout` becomes the controlling terminal.
    pub tty: bool,
}

/// Forks a keeper, which starts the leader and writes [`Record`]s to `told`.
pub(super) fn start(launch: &Launch, told: OwnedFd) -> Result<Pid, Errno> {
    sys::fork(&Task { launch, told }, keep)
}

/// Forks a zygote: a child of the agent that executes a program of ours, without a keeper.
pub(super) fn start_zygote(launch: &Launch) -> Result<Pid, Errno> {
    sys::fork(launch, |child, launch| {
        let Stdio {
            stdin,
            stdout,
            stderr,
            ..
        } = &launch.stdio;
        sys::close_all_but(child, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]);
        become_program(child, launch, &Cell::new(None))
    })
}

struct Task<'a> {
    launch: &'a Launch,
    told: OwnedFd,
}

fn keep(child: &InChild, task: &Task<'_>) -> i32 {
    close_what_leaders_need_not(child, task);
    // A process group of its own, so that signals to the agent's group do not reach it. Not a
    // session: where the kernel schedules by session (autogroup), a new one waits behind all
    // others.
    let _ = setpgid(None, None);
    let _ = set_name(c"hotcell-keeper");
    match set_child_subreaper(Some(Pid::INIT)) {
        // gVisor supports subreapers only for PID 1: there, a process that outlives its parent is
        // reparented to the agent, which kills it.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return tell(task, &not_started(LaunchStep::Clone, errno)),
    }
    match start_leader(task.launch) {
        Ok(leader) => keep_leader(child, task, leader),
        Err((step, errno)) => tell(task, &not_started(step, errno)),
    }
}

fn keep_leader(child: &InChild, task: &Task<'_>, leader: Pid) -> i32 {
    // The agent sees the end of the output only when no other process holds the pipes.
    sys::close_all_but(child, [task.told.as_fd()]);
    let _ = drop_capabilities();
    prefer_for_oom(leader);
    let pid = leader.as_raw_nonzero().get().cast_unsigned();
    tell(task, &Record::Started { pid });
    reap(task, leader)
}

fn start_leader(launch: &Launch) -> Result<Pid, (LaunchStep, Errno)> {
    struct Shared<'a>(&'a Launch, Failure);
    let shared = Shared(launch, Cell::new(None));
    let pid = sys::vfork(&shared, |child, shared| {
        become_program(child, shared.0, &shared.1)
    })
    .map_err(|errno| (LaunchStep::Clone, errno))?;
    match shared.1.get() {
        None => Ok(pid),
        Some(failure) => {
            let _ = sys::wait_any(false);
            Err(failure)
        }
    }
}

/// Reaps all children, including adopted ones, until none is left.
fn reap(task: &Task<'_>, leader: Pid) -> i32 {
    loop {
        match sys::wait_any(false) {
            Ok(Some(ended)) if ended.pid == leader.as_raw_nonzero().get() => {
                tell_end(task, &ended);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
}

fn tell_end(task: &Task<'_>, ended: &sys::Ended) {
    if let Some(status) = WaitStatus::from_raw(ended.status) {
        let record = Record::Ended {
            status,
            user_us: ended.cpu_us.0,
            system_us: ended.cpu_us.1,
            max_rss_bytes: ended.max_rss_bytes,
        };
        tell(task, &record);
    }
}

fn tell(task: &Task<'_>, record: &Record) -> i32 {
    // Three records fit into any pipe, so this neither blocks nor writes partially.
    match rustix::io::write(&task.told, &record.encode()) {
        Ok(_) => 0,
        Err(_) => 1,
    }
}

/// Best effort: we cannot change a leader of another user, and a process may lower its own value to
/// the agent's, but not below.
fn prefer_for_oom(leader: Pid) {
    let mut buffer = [0; 40];
    let Some(path) = oom_path(leader, &mut buffer) else {
        return;
    };
    if let Ok(file) = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, LEADER_OOM_SCORE_ADJ);
    }
}

fn oom_path(pid: Pid, buffer: &mut [u8; 40]) -> Option<&CStr> {
    use std::io::Write;
    let mut rest = &mut buffer[..];
    write!(rest, "/proc/{}/oom_score_adj\0", pid.as_raw_nonzero()).ok()?;
    CStr::from_bytes_until_nul(buffer).ok()
}

fn close_what_leaders_need_not(child: &InChild, task: &Task<'_>) {
    let stdio = &task.launch.stdio;
    let kept = [
        task.told.as_fd(),
        stdio.stdin.as_fd(),
        stdio.stdout.as_fd(),
        stdio.stderr.as_fd(),
    ];
    sys::close_all_but(child, kept);
}

fn not_started(step: LaunchStep, errno: Errno) -> Record {
    let errno = errno.raw_os_error().cast_unsigned();
    Record::NotStarted { step, errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_largest_pid_fits() {
        let pid = Pid::from_raw(i32::MAX).unwrap();
        let mut buffer = [0; 40];
        assert_eq!(
            oom_path(pid, &mut buffer),
            Some(c"/proc/2147483647/oom_score_adj")
        );
    }
}
