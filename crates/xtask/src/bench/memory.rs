//! Memory of a process, as the kernel counts it.

use anyhow::{Context, Result};

/// Resident memory of a process.
pub(super) fn rss_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// Memory of a process that no file stands behind: heap and stacks.
pub(super) fn anonymous_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: u32, field: &'static str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .context(field)?;
    Ok(kib.parse::<u64>()? << 10)
}

/// Memory that a process shares with no other.
pub(super) fn private_bytes(pid: u32) -> Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(kib).sum::<u64>() << 10)
}

/// The agent of a container, found by its command line.
pub(super) fn agent_of(container: &str) -> Result<u32> {
    let is_agent = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        command.starts_with("hotcell-agent\0init\0") && command.contains(container)
    };
    std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(is_agent)
        .context("the agent does not run")
}
