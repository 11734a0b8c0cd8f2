//! Finding a container's init when no record names it: its creator died between
//! starting it and writing that down.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_domain::{ContainerId, Profile};
use hotcell_runtime::LAUNCHER_ARGV0;

/// How long a process may take from its clone to its init program.
const INIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Between two looks at it.
const INIT_PAUSE: Duration = Duration::from_millis(1);

/// How init is started, in a form that no other process on the host has.
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

/// A handle on the init of a container, if it runs.
///
/// A process inside a container can give itself any command line, but only init is
/// number 1 of its namespace, and containers cannot make namespaces.
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

/// Waits for the first processes of containers that are not yet init: each of them
/// becomes one, or ends, and before that it cannot be told whose it is. Its launcher may
/// be dead, so nobody else waits for it.
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

/// Its command line; empty if it is gone.
fn command(pid: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Whether it is number 1 of a namespace below ours.
fn is_init(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace();
    numbers.next().is_some() && numbers.next_back() == Some("1")
}
