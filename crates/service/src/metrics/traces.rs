//! Spans that were sent to a collector, or not.

use hotcell_otlp::SpanCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Label, reach};

#[derive(Debug)]
pub(super) struct TraceMetrics {
    spans: Family<[Label; 1], Counter>,
}

impl TraceMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            spans: Family::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell_otel");
        let help =
            "Spans that the collector took, that it did not take, and that found the queue full";
        own.register("spans", help, this.spans.clone());
        this.show(SpanCounts::default());
        this
    }

    pub(super) fn show(&self, counts: SpanCounts) {
        for (outcome, count) in [
            ("exported", counts.exported),
            ("failed", counts.failed),
            ("dropped", counts.dropped),
        ] {
            reach(&self.spans.get_or_create(&[("outcome", outcome)]), count);
        }
    }
}
