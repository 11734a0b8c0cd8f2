//! The warm pool.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{seconds_to_minutes, set};
use crate::PoolView;

/// Upper ends of the buckets of the age of a warm container when it is handed out, in
/// seconds.
const AGE_SECONDS: [f64; 9] = [
    0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0,
];

#[derive(Debug)]
pub(super) struct PoolMetrics {
    ready: Gauge,
    wanted: Gauge,
    hits: Counter,
    misses: Counter,
    age_seconds: Histogram,
    refill_seconds: Histogram,
}

impl PoolMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            ready: Gauge::default(),
            wanted: Gauge::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            age_seconds: Histogram::new(AGE_SECONDS),
            refill_seconds: seconds_to_minutes(),
        };
        let warm = registry.sub_registry_with_prefix("hotcell_warm");
        let ready = this.ready.clone();
        warm.register("containers", "Containers that are ready", ready);
        let wanted = this.wanted.clone();
        warm.register("wanted", "Containers that shall be ready", wanted);
        let hits = this.hits.clone();
        warm.register("hits", "Ready containers that were handed out", hits);
        let help = "Containers that were made because none was ready";
        warm.register("misses", help, this.misses.clone());
        let help = "Age of ready containers when they were handed out";
        warm.register("age_seconds", help, this.age_seconds.clone());
        let help = "How long it took to make a container ready";
        warm.register("refill_seconds", help, this.refill_seconds.clone());
        this
    }

    pub(super) fn hit(&self, age: Duration) {
        self.hits.inc();
        self.age_seconds.observe(age.as_secs_f64());
    }

    pub(super) fn missed(&self) {
        self.misses.inc();
    }

    pub(super) fn refilled(&self, duration: Duration) {
        self.refill_seconds.observe(duration.as_secs_f64());
    }

    pub(super) fn show(&self, pools: &[PoolView]) {
        set(&self.ready, pools.iter().map(|pool| pool.ready).sum());
        set(&self.wanted, pools.iter().map(|pool| pool.wanted).sum());
    }
}
