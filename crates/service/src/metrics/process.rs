//! Metrics of this process, read from the kernel on demand.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::set;

#[derive(Debug)]
pub(super) struct ProcessMetrics {
    resident_bytes: Gauge,
    threads: Gauge,
    open_fds: Gauge,
}

impl ProcessMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            resident_bytes: Gauge::default(),
            threads: Gauge::default(),
            open_fds: Gauge::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell_process");
        let bytes = this.resident_bytes.clone();
        own.register("resident_memory_bytes", "Memory of this server", bytes);
        own.register("threads", "Threads of this server", this.threads.clone());
        let help = "File descriptors that this server has open";
        own.register("open_fds", help, this.open_fds.clone());
        this
    }

    /// Reads the figures. Those that the kernel does not report stay unchanged.
    pub(super) fn look(&self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(kib) = field(&status, "VmRSS:") {
            set(&self.resident_bytes, kib.saturating_mul(1024));
        }
        if let Some(threads) = field(&status, "Threads:") {
            set(&self.threads, threads);
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the directory that is being read.
            set(&self.open_fds, open.count().saturating_sub(1) as u64);
        }
    }
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
