//! Metrics of the audit log: events written, their latency, and the backlog.

use hotcell_ledger::{LedgerFigures, Timing};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, reach, set};

/// Histogram buckets for the duration of an event and of a sync, in seconds.
const SECONDS: [f64; 9] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];

#[derive(Debug)]
pub(super) struct AuditMetrics {
    events: Counter,
    bytes: Counter,
    left_out: Counter,
    sealed_segments: Counter,
    failures: Family<[Label; 1], Counter>,
    write_seconds: Histogram,
    sync_seconds: Histogram,
    queue: Gauge,
    unanchored: Gauge,
    is_failing: Gauge,
}

impl AuditMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            events: Counter::default(),
            bytes: Counter::default(),
            left_out: Counter::default(),
            sealed_segments: Counter::default(),
            failures: Family::default(),
            write_seconds: Histogram::new(SECONDS),
            sync_seconds: Histogram::new(SECONDS),
            queue: Gauge::default(),
            unanchored: Gauge::default(),
            is_failing: Gauge::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell_audit");
        let help = "Events written to the audit log";
        own.register("events", help, this.events.clone());
        let help = "Size of those events, in bytes";
        own.register("event_bytes", help, this.bytes.clone());
        let help = "Events that found the queue full; the audit log says how many";
        own.register("events_left_out", help, this.left_out.clone());
        let help = "Segments of the audit log that were compressed";
        own.register("sealed_segments", help, this.sealed_segments.clone());
        let help = "Steps of the audit log that failed and are tried again";
        own.register("failures", help, this.failures.clone());
        let help = "How long events waited until they were with the kernel";
        own.register("write_seconds", help, this.write_seconds.clone());
        let help = "How long the disk took to sync the audit log";
        own.register("sync_seconds", help, this.sync_seconds.clone());
        let help = "Events that wait to be written";
        own.register("queue_depth", help, this.queue.clone());
        let help = "Events that are written and not anchored in the database yet";
        own.register("unanchored_events", help, this.unanchored.clone());
        let help = "Whether the audit log cannot be written now";
        own.register("failing", help, this.is_failing.clone());
        for (step, _) in LedgerFigures::default().failures {
            drop(this.failures.get_or_create(&[("step", step)]));
        }
        this
    }

    /// A callback for the timings of the ledger.
    pub(super) fn observer(&self) -> impl Fn(Timing) + Send + Sync + 'static {
        let (write, sync) = (self.write_seconds.clone(), self.sync_seconds.clone());
        move |timing| match timing {
            Timing::Written(duration) => write.observe(duration.as_secs_f64()),
            Timing::Synced(duration) => sync.observe(duration.as_secs_f64()),
        }
    }

    pub(super) fn show(&self, now: &LedgerFigures) {
        reach(&self.events, now.events);
        reach(&self.bytes, now.bytes);
        reach(&self.left_out, now.left_out);
        reach(&self.sealed_segments, now.sealed_segments);
        for (step, count) in now.failures {
            reach(&self.failures.get_or_create(&[("step", step)]), count);
        }
        set(&self.queue, now.queued);
        set(&self.unanchored, now.unanchored);
        set(&self.is_failing, u64::from(now.is_failing));
    }
}
