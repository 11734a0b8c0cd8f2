//! Metrics, one file per subject.
//!
//! Names that begin with `mcp_devbench_` are those of existing dashboards; all others begin with
//! `hotcell_`. Label values are fixed words, never a caller's text, so their number is bounded.
//! `docs/METRICS.md` lists all metrics, and a test compares.

mod agent;
mod audit;
mod egress;
mod engine;
mod execs;
mod housekeeping;
mod operations;
mod pool;
mod process;
mod store;
mod traces;

use std::time::Duration;

use hotcell_domain::{ExecStatus, Phase, QuotaKind};
use hotcell_ledger::{LedgerFigures, Timing};
use hotcell_otlp::SpanCounts;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::operation::Outcome;
use crate::{Action, Collected, PoolView, Reconciled};

pub(crate) use agent::AgentMetrics;

use audit::AuditMetrics;
use egress::EgressMetrics;
use engine::EngineMetrics;
use execs::ExecMetrics;
use housekeeping::HousekeepingMetrics;
use operations::OperationMetrics;
use pool::PoolMetrics;
use process::ProcessMetrics;
use store::StoreMetrics;
use traces::TraceMetrics;

type Label = (&'static str, &'static str);

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    operations: OperationMetrics,
    execs: ExecMetrics,
    pool: PoolMetrics,
    pub(crate) egress: EgressMetrics,
    pub(crate) engine: EngineMetrics,
    pub(crate) agent: AgentMetrics,
    store: StoreMetrics,
    audit: AuditMetrics,
    traces: TraceMetrics,
    housekeeping: HousekeepingMetrics,
    process: ProcessMetrics,
}

/// Gauges that are computed when the metrics are read.
#[derive(Debug, Default)]
pub(crate) struct Now {
    pub(crate) phases: Vec<Phase>,
    pub(crate) execs_running: usize,
    pub(crate) execs_queued: usize,
    pub(crate) warm: Vec<PoolView>,
    pub(crate) store_queue: usize,
    pub(crate) audit: Option<LedgerFigures>,
    pub(crate) spans: SpanCounts,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        Self {
            operations: OperationMetrics::new(&mut registry),
            execs: ExecMetrics::new(&mut registry),
            pool: PoolMetrics::new(&mut registry),
            egress: EgressMetrics::new(&mut registry),
            engine: EngineMetrics::new(&mut registry),
            agent: AgentMetrics::new(&mut registry),
            store: StoreMetrics::new(&mut registry),
            audit: AuditMetrics::new(&mut registry),
            traces: TraceMetrics::new(&mut registry),
            housekeeping: HousekeepingMetrics::new(&mut registry),
            process: ProcessMetrics::new(&mut registry),
            registry,
        }
    }
}

impl Metrics {
    /// Counts an operation: under its own name, and under the names of existing dashboards.
    pub(crate) fn operation_ended(&self, action: Action, ended: Outcome, duration: Duration) {
        self.operations.ended(action, ended, duration);
    }

    /// Counts a request that exceeded a quota.
    pub(crate) fn over_quota(&self, quota: QuotaKind) {
        self.operations.over_quota(quota);
    }

    pub(crate) fn warm_hit(&self, age: Duration) {
        self.pool.hit(age);
    }

    pub(crate) fn warm_missed(&self) {
        self.pool.missed();
    }

    /// Records how long it took to create a warm container.
    pub(crate) fn warm_refilled(&self, duration: Duration) {
        self.pool.refilled(duration);
    }

    pub(crate) fn exec_started(&self) {
        self.execs.started();
    }

    /// Records how long an exec was queued.
    pub(crate) fn exec_waited(&self, wait: Duration) {
        self.execs.waited(wait);
    }

    pub(crate) fn exec_wrote(&self, bytes: u64) {
        self.execs.wrote(bytes);
    }

    pub(crate) fn exec_ended(&self, status: ExecStatus, wall: Duration) {
        self.execs.ended(status, wall);
    }

    pub(crate) fn store_failed(&self) {
        self.store.failed();
    }

    /// A callback for the duration of each store transaction.
    pub(crate) fn store_observer(&self) -> impl Fn(Duration) + Send + Sync + 'static {
        self.store.observer()
    }

    /// A callback for the timings of the ledger.
    pub(crate) fn audit_observer(&self) -> impl Fn(Timing) + Send + Sync + 'static {
        self.audit.observer()
    }

    pub(crate) fn collected(&self, collected: &Collected) {
        self.housekeeping.collected(collected);
    }

    pub(crate) fn reconciled(&self, reconciled: &Reconciled) {
        self.housekeeping.reconciled(reconciled);
    }

    pub(crate) fn memory_used(&self, bytes: u64) {
        self.engine.memory_used(bytes);
    }

    /// All metrics in the `OpenMetrics` text format.
    pub(crate) fn text(&self, now: &Now) -> String {
        self.engine.show(&now.phases);
        self.execs.show(now.execs_running, now.execs_queued);
        self.pool.show(&now.warm);
        self.store.show(now.store_queue);
        if let Some(figures) = &now.audit {
            self.audit.show(figures);
        }
        self.traces.show(now.spans);
        self.process.look();
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}

fn set(gauge: &Gauge, count: u64) {
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
}

/// Raises a counter to a value that was counted elsewhere and only grows.
fn reach(counter: &Counter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

fn outcome(is_ok: bool) -> Label {
    ("outcome", if is_ok { "ok" } else { "error" })
}

/// Buckets for steps of an engine and other things that take as long.
fn seconds_to_minutes() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0,
    ])
}

#[cfg(test)]
mod tests;
