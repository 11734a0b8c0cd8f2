//! Memory of processes, as the kernel counts it.

use std::collections::HashSet;

use anyhow::{Context, Result};

/// Resident memory of a process.
pub(super) fn rss_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// Anonymous memory of a process: heap and stacks.
pub(super) fn anonymous_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: u32, field: &'static str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    bytes_of(&status, field)
}

fn bytes_of(text: &str, field: &'static str) -> Result<u64> {
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .context(field)?;
    Ok(kib.parse::<u64>()? << 10)
}

/// Private memory of a process: pages that it shares with no other.
pub(super) fn private_bytes(pid: u32) -> Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(kib).sum::<u64>() << 10)
}

/// Anonymous memory of all descendants of a process. Shared pages are counted once.
pub(super) fn anonymous_bytes_below(root: u32) -> Result<u64> {
    let mut bytes = 0;
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        // A process that has just ended has neither children nor memory.
        let Ok(children) = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        else {
            continue;
        };
        for child in children.split_whitespace().map(str::parse::<u32>) {
            let child = child?;
            if let Ok(rollup) = std::fs::read_to_string(format!("/proc/{child}/smaps_rollup")) {
                bytes += bytes_of(&rollup, "Pss_Anon:")?;
                open.push(child);
            }
        }
    }
    Ok(bytes)
}

/// Memory that the kernel can hand out without swapping.
pub(super) fn available_bytes() -> Result<u64> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    bytes_of(&info, "MemAvailable:")
}

/// All memory of the host.
pub(super) fn total_bytes() -> Result<u64> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    bytes_of(&info, "MemTotal:")
}

/// The PID of a container's agent.
pub(super) fn agent_of(container: &str) -> Result<u32> {
    let found = agents(&[container.to_owned()])?;
    found.first().copied().context("the agent does not run")
}

/// The PIDs of containers' agents, found by their command lines.
pub(super) fn agents(containers: &[String]) -> Result<Vec<u32>> {
    named(containers, |command| {
        command.starts_with("hotcell-agent\0init\0")
    })
}

/// The PIDs of the shims of Docker's containers.
pub(super) fn shims(containers: &[String]) -> Result<Vec<u32>> {
    named(containers, |command| {
        let program = command.split('\0').next().unwrap_or_default();
        program.contains("containerd-shim")
    })
}

/// The PIDs of processes of a kind whose command lines name one of the containers.
fn named(containers: &[String], is_kind: impl Fn(&str) -> bool) -> Result<Vec<u32>> {
    let wanted: HashSet<&str> = containers.iter().map(String::as_str).collect();
    let is_wanted = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        is_kind(&command)
            && command
                .split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
                .any(|word| wanted.contains(word))
    };
    let pids = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter(is_wanted).collect())
}
