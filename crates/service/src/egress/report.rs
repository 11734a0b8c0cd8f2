//! What an exec's result tells about egress.

use std::time::SystemTime;

use hotcell_egress::Guest;

/// What a container's egress did while an exec ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressReport {
    /// What was refused, each once.
    pub denied: Vec<EgressDenial>,
    /// Connections that were opened.
    pub connections: u64,
    /// Bytes received.
    pub bytes_down: u64,
    /// Bytes sent.
    pub bytes_up: u64,
}

/// Something that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressDenial {
    /// The host, as the program named it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How often.
    pub count: u64,
    /// Why.
    pub reason: String,
    /// What can be done about it.
    pub hint: String,
}

/// The state of a container's egress at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    since: SystemTime,
    connections: u64,
    bytes_down: u64,
    bytes_up: u64,
}

impl Mark {
    pub(super) fn now(guest: &Guest) -> Self {
        let since = SystemTime::now();
        let report = guest.report(since);
        Self {
            since,
            connections: report.connections,
            bytes_down: report.bytes_down,
            bytes_up: report.bytes_up,
        }
    }

    /// What has happened since; `None` if nothing has.
    pub(super) fn report(&self, guest: &Guest) -> Option<EgressReport> {
        let now = guest.report(self.since);
        let denied = now.denied.into_iter().map(|(denial, count)| EgressDenial {
            hint: denial.hint(),
            reason: denial.reason.to_string(),
            port: denial.port,
            host: denial.host,
            count,
        });
        let report = EgressReport {
            denied: denied.collect(),
            connections: now.connections.saturating_sub(self.connections),
            bytes_down: now.bytes_down.saturating_sub(self.bytes_down),
            bytes_up: now.bytes_up.saturating_sub(self.bytes_up),
        };
        (report != EgressReport::default()).then_some(report)
    }
}
