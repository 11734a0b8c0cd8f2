//! The keeper: per exec one small process between the agent and the leader.
//!
//! It is a child subreaper, so what the exec double-forks comes back to it and never to
//! the agent. It has its own copy of memory, its own process group, every signal blocked and
//! one descriptor, the status pipe. It waits until it has no child left and then ends:
//! a keeper that is gone means that nothing of its exec is left.
//!
//! The child's half (from [`keep`] on) allocates nothing and takes no lock.

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

/// How much sooner than the agent the kernel should kill a leader when memory runs out.
const LEADER_OOM_SCORE_ADJ: &[u8] = b"500";

/// Everything a leader needs, ready before the fork.
pub struct Launch {
    /// Arguments, the program's name first.
    pub argv: CStrings,
    /// The whole environment.
    pub env: CStrings,
    /// Where the program may be, in order.
    pub candidates: Vec<CString>,
    /// The working directory.
    pub cwd: CString,
    /// Whom to become; absent: stay.
    pub user: Option<User>,
    /// The most memory that each of its processes may have.
    pub data_bytes_max: Option<u64>,
    /// The leader's ends of pipes or of a terminal.
    pub stdio: Stdio,
}

/// A user and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: Uid,
    /// The group; there is no other.
    pub gid: Gid,
}

/// What becomes the leader's descriptors 0, 1 and 2; all close on exec themselves.
pub struct Stdio {
    /// Descriptor 0.
    pub stdin: OwnedFd,
    /// Descriptor 1; the terminal, if there is one.
    pub stdout: OwnedFd,
    /// Descriptor 2.
    pub stderr: OwnedFd,
    /// Whether `stdout` is a terminal to take as the controlling one.
    pub tty: bool,
}

/// Forks a keeper, which starts the leader at once and tells its [`Record`]s to `told`.
pub(super) fn start(launch: &Launch, told: OwnedFd) -> Result<Pid, Errno> {
    sys::fork(&Task { launch, told }, keep)
}

struct Task<'a> {
    launch: &'a Launch,
    told: OwnedFd,
}

fn keep(child: &InChild, task: &Task<'_>) -> i32 {
    close_what_leaders_need_not(child, task);
    // A group of its own, out of the way of signals to the agent's. Not a session: where the
    // kernel schedules by session, each new one waits for its turn behind all others.
    let _ = setpgid(None, None);
    let _ = set_name(c"hotcell-keeper");
    match set_child_subreaper(Some(Pid::INIT)) {
        // gVisor has none but PID 1: there, a process that outlives its parent comes to the
        // agent, which ends it.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return tell(task, &not_started(LaunchStep::Clone, errno)),
    }
    match start_leader(task.launch) {
        Ok(leader) => keep_leader(child, task, leader),
        Err((step, errno)) => tell(task, &not_started(step, errno)),
    }
}

fn keep_leader(child: &InChild, task: &Task<'_>, leader: Pid) -> i32 {
    // The agent sees the end of the output only once nobody else holds the pipes.
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

/// Waits for every child, its own and those that were left to it, until none is left.
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
    // Three records fit into any pipe: it neither blocks nor writes a part.
    match rustix::io::write(&task.told, &record.encode()) {
        Ok(_) => 0,
        Err(_) => 1,
    }
}

/// Best effort: a leader of another user is out of our reach, and any process may set
/// its own value back to that of the agent, though never below.
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
