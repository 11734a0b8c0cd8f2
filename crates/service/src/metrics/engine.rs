//! Metrics of the engine: its calls, their duration, and its containers.

use std::sync::Arc;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId, Phase};
use hotcell_engine::{
    Abandonment, AgentStream, Capabilities, Container, DiskUse, Engine, EngineError, Garbage, Pull,
    ReadyImage, SweepMode, Swept,
};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Label, outcome, seconds_to_minutes, set};
use crate::trace;

type Calls = Family<[Label; 2], Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub(crate) struct EngineMetrics {
    calls: Calls,
    active_containers: Gauge,
    containers: Family<[Label; 1], Gauge>,
    memory_bytes: Gauge,
}

/// An engine whose calls are counted and timed.
struct MeteredEngine {
    engine: Arc<dyn Engine>,
    calls: Calls,
}

impl EngineMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let this = Self {
            calls: Family::new_with_constructor(seconds_to_minutes),
            active_containers: Gauge::default(),
            containers: Family::default(),
            memory_bytes: Gauge::default(),
        };
        let known = registry.sub_registry_with_prefix("mcp_devbench");
        let active = this.active_containers.clone();
        known.register("active_containers", "Containers that run", active);
        let memory = this.memory_bytes.clone();
        known.register("memory_usage_bytes", "Memory of all containers", memory);
        let own = registry.sub_registry_with_prefix("hotcell");
        let containers = this.containers.clone();
        own.register("containers", "Containers by phase", containers);
        let help = "How long the engine took for each step, by outcome";
        own.register("engine_call_seconds", help, this.calls.clone());
        this
    }

    /// Wraps an engine so that its calls are counted.
    pub(crate) fn meter(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        Arc::new(MeteredEngine {
            engine,
            calls: self.calls.clone(),
        })
    }

    #[cfg(test)]
    pub(super) fn count_for_test(&self) {
        drop(self.calls.get_or_create(&[("step", "list"), outcome(true)]));
    }

    pub(super) fn memory_used(&self, bytes: u64) {
        set(&self.memory_bytes, bytes);
    }

    pub(super) fn show(&self, phases: &[Phase]) {
        let with = |phase| phases.iter().filter(|now| **now == phase).count() as u64;
        set(&self.active_containers, with(Phase::Running));
        for phase in Phase::ALL.into_iter().filter(|phase| !phase.is_final()) {
            let gauge = self.containers.get_or_create(&[("phase", phase.as_str())]);
            set(&gauge, with(phase));
        }
    }
}

impl MeteredEngine {
    async fn timed<T>(
        &self,
        step: &'static str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let began = Instant::now();
        let done = call.await;
        let labels = [("step", step), outcome(done.is_ok())];
        let calls = self.calls.get_or_create(&labels);
        let duration = began.elapsed();
        calls.observe(duration.as_secs_f64());
        trace::step("engine", step, duration, done.is_ok());
        done
    }
}

#[async_trait]
impl Engine for MeteredEngine {
    fn identity(&self) -> EngineId {
        self.engine.identity()
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        self.engine.capabilities().await
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        let call = self.engine.fetch_image(spec, pull, abandonment);
        self.timed("fetch_image", call).await
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        let call = self.engine.create(id, spec, image, abandonment);
        self.timed("create", call).await
    }

    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.timed("restart", self.engine.restart(id, abandonment))
            .await
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        self.timed("open", self.engine.open(id)).await
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        self.timed("inspect", self.engine.inspect(id)).await
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.timed("list", self.engine.list()).await
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.timed("destroy", self.engine.destroy(id)).await
    }

    async fn disk_use(&self, id: &ContainerId) -> Result<Option<DiskUse>, EngineError> {
        self.timed("disk_use", self.engine.disk_use(id)).await
    }

    /// Not timed: it takes as long as the container lives.
    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.engine.exited(id).await
    }

    async fn sync(&self, ids: &[ContainerId]) -> Result<(), EngineError> {
        self.timed("sync", self.engine.sync(ids)).await
    }

    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError> {
        self.timed("sweep", self.engine.sweep(garbage, mode)).await
    }
}
