//! Metrics of operations.

use std::time::Duration;

use hotcell_domain::QuotaKind;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, outcome};
use crate::Action;
use crate::operation::Outcome;

/// Upper ends of the buckets of an operation's time, in seconds.
const SECONDS: [f64; 10] = [
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0, 10.0, 60.0,
];

#[derive(Debug)]
pub(super) struct OperationMetrics {
    spawns: Family<[Label; 1], Counter>,
    file_operations: Family<[Label; 2], Counter>,
    operations: Family<[Label; 2], Counter>,
    seconds: Family<[Label; 2], Histogram, fn() -> Histogram>,
    over_quota: Family<[Label; 1], Counter>,
}

impl OperationMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            spawns: Family::default(),
            file_operations: Family::default(),
            operations: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            over_quota: Family::default(),
        };
        let known = registry.sub_registry_with_prefix("mcp_devbench");
        let spawns = this.spawns.clone();
        known.register("container_spawns", "Containers asked for", spawns);
        let files = this.file_operations.clone();
        known.register("fs_operations", "File operations", files);
        let own = registry.sub_registry_with_prefix("hotcell");
        let operations = this.operations.clone();
        own.register("operations", "What callers asked for", operations);
        let seconds = this.seconds.clone();
        let help = "How long operations took, by outcome";
        own.register("operation_duration_seconds", help, seconds);
        let help = "Operations that were refused because of a quota";
        own.register("quota_refusals", help, this.over_quota.clone());
        this.begin_at_zero();
        this
    }

    /// Creates all series at zero, so that "nothing happened" can be told from "nothing counted".
    fn begin_at_zero(&self) {
        for is_ok in [true, false] {
            drop(self.spawns.get_or_create(&[outcome(is_ok)]));
            for name in Action::ALL.map(file_operation).into_iter().flatten() {
                let labels = [("operation", name), outcome(is_ok)];
                drop(self.file_operations.get_or_create(&labels));
            }
        }
        for quota in QuotaKind::ALL {
            drop(self.over_quota.get_or_create(&[("quota", quota.as_str())]));
        }
    }

    pub(super) fn ended(&self, action: Action, ended: Outcome, duration: Duration) {
        let (name, is_ok) = (action.as_str(), ended == Outcome::Ok);
        let labels = [("operation", name), ("outcome", ended.as_str())];
        self.operations.get_or_create(&labels).inc();
        let seconds = self.seconds.get_or_create(&labels);
        seconds.observe(duration.as_secs_f64());
        if action == Action::Spawn {
            self.spawns.get_or_create(&[outcome(is_ok)]).inc();
        }
        if let Some(name) = file_operation(action) {
            let labels = [("operation", name), outcome(is_ok)];
            self.file_operations.get_or_create(&labels).inc();
        }
    }

    pub(super) fn over_quota(&self, quota: QuotaKind) {
        let label = ("quota", quota.as_str());
        self.over_quota.get_or_create(&[label]).inc();
    }
}

/// The name that existing dashboards use for a file operation.
fn file_operation(action: Action) -> Option<&'static str> {
    action.as_str().strip_prefix("fs_")
}
