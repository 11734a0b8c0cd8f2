//! The machine that a figure belongs to.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::memory;

/// What a reader has to know of a machine to compare figures.
pub(super) struct Host {
    pub(super) processors: usize,
    pub(super) model: String,
    pub(super) memory_gib: u64,
    pub(super) kernel: String,
    pub(super) system: String,
    pub(super) cgroups: &'static str,
    /// Processes that ran or waited in the last minute: more than a few is no quiet machine.
    pub(super) load: String,
}

impl Host {
    pub(super) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str, sign: char| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(sign));
            value.map_or_else(String::new, |(_, value)| {
                value.trim().trim_matches('"').to_owned()
            })
        };
        let is_v2 = fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false);
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            model: field(&read("/proc/cpuinfo"), "model name", ':'),
            memory_gib: memory::total_bytes().unwrap_or(0).div_ceil(1 << 30),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '='),
            cgroups: if is_v2 { "v2" } else { "v1" },
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        json!({
            "processors": self.processors, "model": self.model, "memory_gib": self.memory_gib,
            "kernel": self.kernel, "system": self.system, "cgroups": self.cgroups, "load": self.load,
        })
    }
}

/// The first line that a program says of its version; `None` if it is not installed.
pub(super) fn version_of(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
