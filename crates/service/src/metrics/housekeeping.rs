//! Garbage collection and reconciliation.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::Label;
use crate::{Collected, Reconciled};

#[derive(Debug)]
pub(super) struct HousekeepingMetrics {
    collected: Family<[Label; 1], Counter>,
    reconciled: Family<[Label; 1], Counter>,
}

impl HousekeepingMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            collected: Family::default(),
            reconciled: Family::default(),
        };
        let own = registry.sub_registry_with_prefix("hotcell");
        let collected = this.collected.clone();
        own.register("gc_removed", "What garbage collection removed", collected);
        let reconciled = this.reconciled.clone();
        own.register("reconcile", "What reconciling found", reconciled);
        // Created at zero, so that "nothing happened" can be told from "nothing counted".
        this.collected(&Collected::default());
        this.reconciled(&Reconciled::default());
        this
    }

    pub(super) fn collected(&self, collected: &Collected) {
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

    pub(super) fn reconciled(&self, reconciled: &Reconciled) {
        let count = |outcome, number| {
            let label = ("outcome", outcome);
            self.reconciled.get_or_create(&[label]).inc_by(number);
        };
        count("adopted", reconciled.adopted);
        count("cleaned", reconciled.cleaned);
        count("orphaned", reconciled.orphaned);
        count("error", reconciled.errors);
    }
}
