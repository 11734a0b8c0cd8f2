//! Finding a container's init when no record names it: its maker died between
//! starting it and writing that down.

use std::io;
use std::os::fd::OwnedFd;

use hotcell_domain::ContainerId;

/// How init is started, in a form that no other process on the host has.
pub(super) fn argv(id: &ContainerId) -> Vec<String> {
    [
        "hotcell-agent",
        "init",
        "--container",
        id.as_str(),
        "--root",
        "/workspace",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A handle on the init of a container, if it runs.
///
/// A process inside a container can give itself any command line, but only init is
/// number 1 of its namespace, and containers cannot make namespaces.
pub(super) fn init_of(id: &ContainerId) -> io::Result<Option<OwnedFd>> {
    let wanted = argv(id).join("\0");
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if !is_init(pid, wanted.as_bytes()) {
            continue;
        }
        if let Some(start_time) = hotcell_runtime::start_time(pid) {
            return hotcell_runtime::open_pidfd(pid, start_time);
        }
    }
    Ok(None)
}

fn is_init(pid: u32, wanted: &[u8]) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if !command.starts_with(wanted) {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let innermost = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .and_then(|pids| pids.split_whitespace().next_back());
    innermost == Some("1")
}
