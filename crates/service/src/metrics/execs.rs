//! Metrics of execs: their number, queue time, run time and output.

use std::time::Duration;

use hotcell_domain::ExecStatus;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, set};

/// Upper ends of the buckets of an exec's time, in seconds.
const SECONDS: [f64; 12] = [
    0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 600.0,
];

/// Upper ends of the buckets of the time in the queue, in seconds.
const WAIT_SECONDS: [f64; 9] = [0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0];

#[derive(Debug)]
pub(super) struct ExecMetrics {
    ended: Family<[Label; 1], Counter>,
    seconds: Histogram,
    started: Counter,
    wait_seconds: Histogram,
    output_bytes: Counter,
    running: Gauge,
    queued: Gauge,
}

impl ExecMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            ended: Family::default(),
            seconds: Histogram::new(SECONDS),
            started: Counter::default(),
            wait_seconds: Histogram::new(WAIT_SECONDS),
            output_bytes: Counter::default(),
            running: Gauge::default(),
            queued: Gauge::default(),
        };
        let known = registry.sub_registry_with_prefix("mcp_devbench");
        known.register("exec", "Execs that ended", this.ended.clone());
        let seconds = this.seconds.clone();
        known.register("exec_duration_seconds", "How long execs ran", seconds);
        let own = registry.sub_registry_with_prefix("hotcell");
        own.register("execs_started", "Execs asked for", this.started.clone());
        let help = "How long execs waited for a place in their container";
        own.register("exec_queue_seconds", help, this.wait_seconds.clone());
        let help = "Output of execs, in bytes";
        own.register("exec_output_bytes", help, this.output_bytes.clone());
        own.register("execs_running", "Execs that run", this.running.clone());
        let queued = this.queued.clone();
        own.register("execs_queued", "Execs that wait for a place", queued);
        // Created at zero, so that "nothing happened" can be told from "nothing counted".
        let all = ExecStatus::ALL.into_iter();
        for status in all.filter(|status| status.is_final()) {
            drop(this.ended.get_or_create(&[("status", status.as_str())]));
        }
        this
    }

    pub(super) fn started(&self) {
        self.started.inc();
    }

    pub(super) fn waited(&self, wait: Duration) {
        self.wait_seconds.observe(wait.as_secs_f64());
    }

    pub(super) fn wrote(&self, bytes: u64) {
        self.output_bytes.inc_by(bytes);
    }

    pub(super) fn ended(&self, status: ExecStatus, wall: Duration) {
        let label = ("status", status.as_str());
        self.ended.get_or_create(&[label]).inc();
        self.seconds.observe(wall.as_secs_f64());
    }

    pub(super) fn show(&self, running: usize, queued: usize) {
        set(&self.running, running as u64);
        set(&self.queued, queued as u64);
    }
}
