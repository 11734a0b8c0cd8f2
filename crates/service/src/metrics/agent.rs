//! Connections to agents.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, outcome, seconds_to_minutes};

/// Counts connections to agents. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct AgentMetrics {
    connects: Family<[Label; 1], Counter>,
    connect_seconds: Histogram,
    losses: Counter,
}

impl AgentMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            connects: Family::default(),
            connect_seconds: seconds_to_minutes(),
            losses: Counter::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell_agent");
        let help = "Attempts to connect to a container's agent";
        own.register("connects", help, this.connects.clone());
        let help = "How long it took to open a stream to an agent and to greet it";
        own.register("connect_seconds", help, this.connect_seconds.clone());
        let help = "Connections to agents that were lost";
        own.register("connections_lost", help, this.losses.clone());
        for is_ok in [true, false] {
            drop(this.connects.get_or_create(&[outcome(is_ok)]));
        }
        this
    }

    pub(crate) fn connected(&self, is_ok: bool, duration: Duration) {
        self.connects.get_or_create(&[outcome(is_ok)]).inc();
        self.connect_seconds.observe(duration.as_secs_f64());
    }

    pub(crate) fn lost(&self) {
        self.losses.inc();
    }
}
