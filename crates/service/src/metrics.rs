//! What is counted.
//!
//! The names that begin with `mcp_devbench_` are those of dashboards that exist; all others
//! begin with `hotcell_`. Labels are words of ours, never a caller's.

use std::time::Duration;

use hotcell_domain::{ExecStatus, Phase};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::operation::Outcome;
use crate::{Action, Collected, PoolView, Reconciled};

type Label = (&'static str, &'static str);

/// Upper ends of the buckets of an operation's time, in seconds.
const OPERATION_SECONDS: [f64; 10] = [
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0, 10.0, 60.0,
];

/// Upper ends of the buckets of an exec's time, in seconds.
const EXEC_SECONDS: [f64; 12] = [
    0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 600.0,
];

/// Upper ends of the buckets of the age of a warm container when it is handed out, in
/// seconds.
const WARM_AGE_SECONDS: [f64; 9] = [
    0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0,
];

/// Counts what happens.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    spawns: Family<[Label; 1], Counter>,
    execs: Family<[Label; 1], Counter>,
    exec_seconds: Histogram,
    file_operations: Family<[Label; 2], Counter>,
    operations: Family<[Label; 2], Counter>,
    operation_seconds: Family<[Label; 1], Histogram, fn() -> Histogram>,
    active_containers: Gauge,
    memory_bytes: Gauge,
    execs_started: Counter,
    execs_running: Gauge,
    execs_queued: Gauge,
    containers: Family<[Label; 1], Gauge>,
    collected: Family<[Label; 1], Counter>,
    reconciled: Family<[Label; 1], Counter>,
    store_errors: Counter,
    warm_containers: Gauge,
    warm_wanted: Gauge,
    warm_hits: Counter,
    warm_misses: Counter,
    warm_age_seconds: Histogram,
}

/// What there is right now.
#[derive(Debug, Default)]
pub(crate) struct Now {
    pub(crate) phases: Vec<Phase>,
    pub(crate) execs_running: usize,
    pub(crate) execs_queued: usize,
    pub(crate) warm: Vec<PoolView>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut this = Self {
            registry: Registry::default(),
            spawns: Family::default(),
            execs: Family::default(),
            exec_seconds: Histogram::new(EXEC_SECONDS),
            file_operations: Family::default(),
            operations: Family::default(),
            operation_seconds: Family::new_with_constructor(operation_histogram),
            active_containers: Gauge::default(),
            memory_bytes: Gauge::default(),
            execs_started: Counter::default(),
            execs_running: Gauge::default(),
            execs_queued: Gauge::default(),
            containers: Family::default(),
            collected: Family::default(),
            reconciled: Family::default(),
            store_errors: Counter::default(),
            warm_containers: Gauge::default(),
            warm_wanted: Gauge::default(),
            warm_hits: Counter::default(),
            warm_misses: Counter::default(),
            warm_age_seconds: Histogram::new(WARM_AGE_SECONDS),
        };
        this.register_known();
        this.register_own();
        this.register_warm();
        this.begin_at_zero();
        this
    }
}

impl Metrics {
    fn register_known(&mut self) {
        let known = self.registry.sub_registry_with_prefix("mcp_devbench");
        let spawns = self.spawns.clone();
        known.register("container_spawns", "Containers asked for", spawns);
        known.register("exec", "Execs that ended", self.execs.clone());
        let seconds = self.exec_seconds.clone();
        known.register("exec_duration_seconds", "How long execs ran", seconds);
        let files = self.file_operations.clone();
        known.register("fs_operations", "File operations", files);
        let active = self.active_containers.clone();
        known.register("active_containers", "Containers that run", active);
        let memory = self.memory_bytes.clone();
        known.register("memory_usage_bytes", "Memory of all containers", memory);
    }

    fn register_own(&mut self) {
        let own = self.registry.sub_registry_with_prefix("hotcell");
        let operations = self.operations.clone();
        own.register("operations", "What callers asked for", operations);
        let seconds = self.operation_seconds.clone();
        let help = "How long that took";
        own.register("operation_duration_seconds", help, seconds);
        let started = self.execs_started.clone();
        own.register("execs_started", "Execs asked for", started);
        let running = self.execs_running.clone();
        own.register("execs_running", "Execs that run", running);
        let queued = self.execs_queued.clone();
        own.register("execs_queued", "Execs that wait for a place", queued);
        let containers = self.containers.clone();
        own.register("containers", "Containers by phase", containers);
        let collected = self.collected.clone();
        own.register("gc_removed", "What garbage collection removed", collected);
        let reconciled = self.reconciled.clone();
        own.register("reconcile", "What reconciling found", reconciled);
        let errors = self.store_errors.clone();
        own.register("store_errors", "Notes that were not taken", errors);
    }

    fn register_warm(&mut self) {
        let warm = self.registry.sub_registry_with_prefix("hotcell_warm");
        let ready = self.warm_containers.clone();
        warm.register("containers", "Containers that are ready", ready);
        let wanted = self.warm_wanted.clone();
        warm.register("wanted", "Containers that shall be ready", wanted);
        let hits = self.warm_hits.clone();
        warm.register("hits", "Ready containers that were handed out", hits);
        let misses = self.warm_misses.clone();
        let help = "Containers that were made because none was ready";
        warm.register("misses", help, misses);
        let age = self.warm_age_seconds.clone();
        let help = "Age of ready containers when they were handed out";
        warm.register("age_seconds", help, age);
    }

    /// A series that is there from the start tells nothing happened from nothing counted.
    fn begin_at_zero(&self) {
        for is_ok in [true, false] {
            drop(self.spawns.get_or_create(&[outcome(is_ok)]));
        }
        for status in ExecStatus::ALL
            .into_iter()
            .filter(|status| status.is_final())
        {
            drop(self.execs.get_or_create(&[("status", status.as_str())]));
        }
        self.collected(&Collected::default());
        self.reconciled(&Reconciled::default());
    }

    /// Counts an operation: by its own name, and by the names that dashboards know.
    pub(crate) fn operation_ended(&self, action: Action, ended: Outcome, duration: Duration) {
        let (name, is_ok) = (action.as_str(), ended == Outcome::Ok);
        let labels = [("operation", name), ("outcome", ended.as_str())];
        self.operations.get_or_create(&labels).inc();
        let seconds = self.operation_seconds.get_or_create(&[("operation", name)]);
        seconds.observe(duration.as_secs_f64());
        if action == Action::Spawn {
            self.spawns.get_or_create(&[outcome(is_ok)]).inc();
        }
        if let Some(name) = name.strip_prefix("fs_") {
            let labels = [("operation", name), outcome(is_ok)];
            self.file_operations.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn warm_hit(&self, age: Duration) {
        self.warm_hits.inc();
        self.warm_age_seconds.observe(age.as_secs_f64());
    }

    pub(crate) fn warm_missed(&self) {
        self.warm_misses.inc();
    }

    pub(crate) fn exec_started(&self) {
        self.execs_started.inc();
    }

    pub(crate) fn exec_ended(&self, status: ExecStatus, wall: Duration) {
        let label = ("status", status.as_str());
        self.execs.get_or_create(&[label]).inc();
        self.exec_seconds.observe(wall.as_secs_f64());
    }

    pub(crate) fn store_failed(&self) {
        self.store_errors.inc();
    }

    pub(crate) fn collected(&self, collected: &Collected) {
        let count = |what, number| {
            let label = ("what", what);
            self.collected.get_or_create(&[label]).inc_by(number);
        };
        count("expired_container", collected.expired_containers);
        count("idle_container", collected.idle_containers);
        count("exec", collected.execs);
        count("container_record", collected.container_records);
        count("image", collected.images);
        count("leftover", collected.leftovers);
        count("error", collected.errors);
    }

    pub(crate) fn reconciled(&self, reconciled: &Reconciled) {
        let count = |outcome, number| {
            let label = ("outcome", outcome);
            self.reconciled.get_or_create(&[label]).inc_by(number);
        };
        count("adopted", reconciled.adopted);
        count("cleaned", reconciled.cleaned);
        count("orphaned", reconciled.orphaned);
        count("error", reconciled.errors);
    }

    pub(crate) fn memory_used(&self, bytes: u64) {
        self.memory_bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// All of it in the `OpenMetrics` text format.
    pub(crate) fn text(&self, now: &Now) -> String {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let with = |phase| now.phases.iter().filter(|now| **now == phase).count() as u64;
        self.active_containers.set(number(with(Phase::Running)));
        for phase in Phase::ALL.into_iter().filter(|phase| !phase.is_final()) {
            let label = ("phase", phase.as_str());
            let gauge = self.containers.get_or_create(&[label]);
            gauge.set(number(with(phase)));
        }
        self.execs_running.set(number(now.execs_running as u64));
        self.execs_queued.set(number(now.execs_queued as u64));
        let ready: u64 = now.warm.iter().map(|set| set.ready).sum();
        let wanted: u64 = now.warm.iter().map(|set| set.wanted).sum();
        self.warm_containers.set(number(ready));
        self.warm_wanted.set(number(wanted));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}

fn operation_histogram() -> Histogram {
    Histogram::new(OPERATION_SECONDS)
}

fn outcome(is_ok: bool) -> Label {
    ("outcome", if is_ok { "ok" } else { "error" })
}
