//! What is counted, one file per subject.
//!
//! The names that begin with `mcp_devbench_` are those of dashboards that exist; all others
//! begin with `hotcell_`. Labels are words of ours, never a caller's, so their number is
//! bounded. `docs/METRICS.md` lists all of them, and a test compares.

mod agent;
mod audit;
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
use engine::EngineMetrics;
use execs::ExecMetrics;
use housekeeping::HousekeepingMetrics;
use operations::OperationMetrics;
use pool::PoolMetrics;
use process::ProcessMetrics;
use store::StoreMetrics;
use traces::TraceMetrics;

type Label = (&'static str, &'static str);

/// Counts what happens.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    operations: OperationMetrics,
    execs: ExecMetrics,
    pool: PoolMetrics,
    pub(crate) engine: EngineMetrics,
    pub(crate) agent: AgentMetrics,
    store: StoreMetrics,
    audit: AuditMetrics,
    traces: TraceMetrics,
    housekeeping: HousekeepingMetrics,
    process: ProcessMetrics,
}

/// What there is right now.
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
    /// Counts an operation: by its own name, and by the names that dashboards know.
    pub(crate) fn operation_ended(&self, action: Action, ended: Outcome, duration: Duration) {
        self.operations.ended(action, ended, duration);
    }

    /// Somebody had as much as its quota allows.
    pub(crate) fn over_quota(&self, quota: QuotaKind) {
        self.operations.over_quota(quota);
    }

    pub(crate) fn warm_hit(&self, age: Duration) {
        self.pool.hit(age);
    }

    pub(crate) fn warm_missed(&self) {
        self.pool.missed();
    }

    /// A warm container is ready after so long.
    pub(crate) fn warm_refilled(&self, duration: Duration) {
        self.pool.refilled(duration);
    }

    pub(crate) fn exec_started(&self) {
        self.execs.started();
    }

    /// An exec has a place after so long.
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

    /// What the store is to call with the time of each transaction.
    pub(crate) fn store_observer(&self) -> impl Fn(Duration) + Send + Sync + 'static {
        self.store.observer()
    }

    /// What the ledger is to call with each time.
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

    /// All of it in the `OpenMetrics` text format.
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

/// Brings a counter to what was counted elsewhere, which only grows.
fn reach(counter: &Counter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

fn outcome(is_ok: bool) -> Label {
    ("outcome", if is_ok { "ok" } else { "error" })
}

/// Steps of an engine, and whatever takes as long.
fn seconds_to_minutes() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0,
    ])
}

#[cfg(test)]
mod tests;
