//! Processes that this one did not start.
//!
//! The kernel reuses process ids. A process id together with the start time identifies one process
//! until the host restarts.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The position of the start time in `/proc/PID/stat`, counted after the process name.
const START_TIME_FIELD: usize = 22 - 3;

/// When the process started, in clock ticks since boot; `None` if there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(_, time)| time)
}

/// Whether the process with this id and start time is still running. A zombie is not.
pub fn alive(pid: u32, start_time: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|text| parse_stat(&text))
        .is_some_and(|(state, time)| time == start_time && !matches!(state, 'Z' | 'X'))
}

/// A pidfd of the process with this id and start time; `None` if it has exited.
pub fn open_pidfd(pid: u32, start_time: u64) -> io::Result<Option<OwnedFd>> {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    match pidfd_open(id, PidfdFlags::empty()) {
        // Checked after opening: an open pidfd keeps referring to the same process.
        Ok(pidfd) => Ok(alive(pid, start_time).then_some(pidfd)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Kills the process; if it is the init of a container, the kernel kills all its processes. `Ok` if
/// it has already exited.
pub fn kill(pidfd: impl AsFd) -> io::Result<()> {
    match pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until the process has exited; false after `timeout`.
pub fn wait_exit(pidfd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Parses state and start time. The process chooses its own name, which may contain anything, so
/// only the text after the last bracket is read.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(START_TIME_FIELD - 1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) S 1) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 0\n";
        assert_eq!(parse_stat(text), Some(('R', 4242)));
    }

    #[test]
    fn this_process_is_alive_at_its_own_time_only() {
        let pid = std::process::id();
        let time = start_time(pid).unwrap();
        assert!(alive(pid, time));
        assert!(!alive(pid, time + 1));
        assert!(open_pidfd(pid, time).unwrap().is_some());
        assert!(open_pidfd(pid, time + 1).unwrap().is_none());
        assert!(open_pidfd(u32::MAX, time).unwrap().is_none());
    }
}
