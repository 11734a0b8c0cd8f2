//! Metrics of the database: the duration of transactions, and its queue.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::set;

/// Upper ends of the buckets of a transaction's time, in seconds.
const SECONDS: [f64; 9] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];

#[derive(Debug)]
pub(super) struct StoreMetrics {
    errors: Counter,
    seconds: Histogram,
    queue: Gauge,
}

impl StoreMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            errors: Counter::default(),
            seconds: Histogram::new(SECONDS),
            queue: Gauge::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell_store");
        own.register("errors", "Notes that were not taken", this.errors.clone());
        let help = "How long transactions took; queries that wait together share one";
        own.register("transaction_seconds", help, this.seconds.clone());
        let queue = this.queue.clone();
        own.register("queue_depth", "Queries that wait for the database", queue);
        this
    }

    pub(super) fn failed(&self) {
        self.errors.inc();
    }

    pub(super) fn observer(&self) -> impl Fn(Duration) + Send + Sync + 'static {
        let seconds = self.seconds.clone();
        move |duration| seconds.observe(duration.as_secs_f64())
    }

    pub(super) fn show(&self, queue: usize) {
        set(&self.queue, queue as u64);
    }
}
