//! Metrics of egress, by profile and outcome. Only the operator names profiles, so their number is
//! bounded; hosts are in the audit log, never here.

use hotcell_egress::ProfileName;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

type Labels = [(&'static str, String); 2];

#[derive(Debug)]
pub(crate) struct EgressMetrics {
    connections: Family<Labels, Counter>,
    bytes: Family<Labels, Counter>,
    questions: Family<Labels, Counter>,
}

impl EgressMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            connections: Family::default(),
            bytes: Family::default(),
            questions: Family::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell_egress");
        let help = "Connections of containers, by profile and outcome";
        own.register("connections", help, this.connections.clone());
        let help = "Bytes of ended connections of containers, by profile and direction";
        own.register("bytes", help, this.bytes.clone());
        let help =
            "Questions about hosts that are not listed and answers to them, by profile and outcome";
        own.register("questions", help, this.questions.clone());
        this
    }

    pub(crate) fn opened(&self, profile: &ProfileName) {
        self.ended_as(profile, "opened");
    }

    pub(crate) fn denied(&self, profile: &ProfileName) {
        self.ended_as(profile, "denied");
    }

    pub(crate) fn closed(&self, profile: &ProfileName, down: u64, up: u64) {
        for (direction, count) in [("down", down), ("up", up)] {
            let labels = labels(profile, "direction", direction);
            self.bytes.get_or_create(&labels).inc_by(count);
        }
    }

    /// A question was asked, or answered in one of three ways.
    pub(crate) fn asked(&self, profile: &ProfileName, outcome: &'static str) {
        let labels = labels(profile, "outcome", outcome);
        self.questions.get_or_create(&labels).inc();
    }

    fn ended_as(&self, profile: &ProfileName, outcome: &'static str) {
        let labels = labels(profile, "outcome", outcome);
        self.connections.get_or_create(&labels).inc();
    }
}

fn labels(profile: &ProfileName, key: &'static str, value: &str) -> Labels {
    [("profile", profile.to_string()), (key, value.to_owned())]
}
