//! Finds a container's init that no record names: its creator died between starting it and writing
//! the record.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_domain::{ContainerId, Profile};
use hotcell_runtime::LAUNCHER_ARGV0;

/// How long a process may take from its clone to its init program.
const INIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Poll interval.
const INIT_PAUSE: Duration = Duration::from_millis(1);

/// The command line of init, which no other process on the host has.
pub(super) fn argv(id: &ContainerId) -> Vec<String> {
    [
        "hotcell-agent",
        "init",
        "--container",
        id.as_str(),
        "--root",
        Profile::WORKSPACE,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A pidfd of a container's init, if it runs.
///
/// A process inside a container can set any command line, but only init has PID 1 in its namespace,
/// and containers cannot create namespaces.
pub(super) fn init_of(id: &ContainerId) -> io::Result<Option<OwnedFd>> {
    await_starting_inits()?;
    let wanted = argv(id).join("\0");
    for pid in pids()? {
        let is_init = command(pid).starts_with(wanted.as_bytes()) && is_init(pid);
        if let Some(start_time) = is_init.then(|| hotcell_runtime::start_time(pid)).flatten() {
            return hotcell_runtime::open_pidfd(pid, start_time);
        }
    }
    Ok(None)
}

/// Waits for the first processes of containers that have not executed init yet: each will do so or
/// exit, and before that it is unknown which container it belongs to. Its launcher may be dead, so
/// nobody else waits for it.
fn await_starting_inits() -> io::Result<()> {
    let is_starting = |pid: &u32| {
        let own_name = command(*pid).strip_suffix(b"\0") == Some(LAUNCHER_ARGV0.as_bytes());
        own_name && is_init(*pid)
    };
    let deadline = Instant::now() + INIT_TIMEOUT;
    for pid in pids()?.iter().filter(|pid| is_starting(pid)) {
        while is_starting(pid) && Instant::now() < deadline {
            thread::sleep(INIT_PAUSE);
        }
    }
    Ok(())
}

fn pids() -> io::Result<Vec<u32>> {
    let number =
        |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(std::fs::read_dir("/proc")?.filter_map(number).collect())
}

/// The command line of a process; empty if it is gone.
fn command(pid: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Whether the process has PID 1 in a namespace below ours.
fn is_init(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace();
    numbers.next().is_some() && numbers.next_back() == Some("1")
}
