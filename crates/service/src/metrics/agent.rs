//! Connections to agents.

use std::sync::Arc;
use std::time::Duration;

use hotcell_agent_client::CallObserver;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, outcome, seconds_to_minutes};
use crate::trace;

/// Upper ends of the buckets of a call's time, in seconds.
const SECONDS: [f64; 10] = [
    0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0,
];

type Calls = Family<[Label; 1], Histogram, fn() -> Histogram>;

/// Metrics of connections to agents. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct AgentMetrics {
    calls: Calls,
    connects: Family<[Label; 1], Counter>,
    connect_seconds: Histogram,
    losses: Counter,
}

impl AgentMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            calls: Family::new_with_constructor(|| Histogram::new(SECONDS)),
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
        let help = "How long agents took to begin to answer, by call";
        own.register("call_seconds", help, this.calls.clone());
        drop(this.calls.get_or_create(&[("call", "Exec")]));
        for is_ok in [true, false] {
            drop(this.connects.get_or_create(&[outcome(is_ok)]));
        }
        this
    }

    /// A callback for the duration of each call.
    pub(crate) fn observer(&self) -> CallObserver {
        let calls = self.calls.clone();
        Arc::new(move |call, duration| {
            let times = calls.get_or_create(&[("call", call)]);
            times.observe(duration.as_secs_f64());
            trace::step("agent", call, duration, true);
        })
    }

    pub(crate) fn connected(&self, is_ok: bool, duration: Duration) {
        self.connects.get_or_create(&[outcome(is_ok)]).inc();
        self.connect_seconds.observe(duration.as_secs_f64());
    }

    pub(crate) fn lost(&self) {
        self.losses.inc();
    }
}
