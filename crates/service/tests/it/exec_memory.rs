//! Commands killed by the OOM killer. The fake engine limits nothing, so a wrapper counts kills as
//! the test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use hotcell_domain::{
    Admitted, ContainerId, ContainerRef, ContainerSpec, EngineId, ExecEnd, ExecId, ExecStatus,
};
use hotcell_engine::{
    Abandonment, AgentStream, Capabilities, Container, Engine, EngineError, Garbage, Pull,
    ReadyImage, SweepMode, Swept,
};
use hotcell_service::Settings;
use hotcell_testkit::fake::{Fake, Faults};
use hotcell_testkit::world::{World, open_sh, sh};

struct Starving {
    fake: Fake,
    oom_kills: Arc<AtomicU64>,
}

#[async_trait]
impl Engine for Starving {
    fn identity(&self) -> EngineId {
        self.fake.identity()
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        self.fake.fetch_image(spec, pull, abandonment).await
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.fake.create(id, spec, image, abandonment).await
    }

    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.fake.restart(id, abandonment).await
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        self.fake.open(id).await
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        let mut container = self.fake.inspect(id).await?;
        container.oom_kills = self.oom_kills.load(Ordering::Relaxed);
        Ok(container)
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.fake.list().await
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.fake.destroy(id).await
    }

    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.fake.exited(id).await
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        self.fake.capabilities().await
    }

    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError> {
        self.fake.sweep(garbage, mode).await
    }
}

async fn starving() -> (World, ContainerRef, Arc<AtomicU64>) {
    let oom_kills = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&oom_kills);
    let world = World::on(Settings::default(), Faults::none(), |fake| {
        Arc::new(Starving {
            fake,
            oom_kills: counted,
        })
    });
    let world = world.await;
    let container = world.spawn().await;
    (world, container, oom_kills)
}

/// Lets an exec continue that waits for a line; returns its result.
async fn go(world: &World, id: &ExecId) -> ExecEnd {
    let line = hotcell_service::Input {
        data: "go\n".into(),
        ..hotcell_service::Input::default()
    };
    let taken = world.service.exec_input(&world.caller, id, line);
    taken.await.expect("its input is open");
    let ended = world.finish(id).await;
    ended.view.end.expect("it has ended")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_kill_that_the_kernel_counted_is_for_want_of_memory() {
    let (world, container, oom_kills) = starving().await;
    let status = async |script: &str| world.run(&container, script).await.view.status;
    assert_eq!(status("kill -9 $$").await, ExecStatus::Failed);

    // Two that are killed together are both reported so, whatever their leaders made of it.
    let first = world
        .start(&container, open_sh("read line; kill -9 $$"))
        .await;
    let second = world
        .start(&container, open_sh("read line; exit 137"))
        .await;
    world.until(&first, ExecStatus::Running).await;
    world.until(&second, ExecStatus::Running).await;
    oom_kills.store(2, Ordering::Relaxed);
    for id in [&first, &second] {
        let end = go(&world, id).await;
        assert_eq!(end.status, ExecStatus::OomKilled);
        assert!(end.reason.unwrap().contains("memory"));
    }
    // Later ones are not.
    assert_eq!(status("kill -9 $$").await, ExecStatus::Failed);
    assert_eq!(status("exit 1").await, ExecStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_counts_no_kill_twice_and_misses_none() {
    let (world, container, oom_kills) = starving().await;
    let waiting = async |world: &World| {
        let id = world
            .start(&container, open_sh("read line; kill -9 $$"))
            .await;
        world.until(&id, ExecStatus::Running).await;
        id
    };
    let before = waiting(&world).await;
    oom_kills.store(1, Ordering::Relaxed);
    let killed = world.run(&container, "kill -9 $$").await;
    assert_eq!(killed.view.status, ExecStatus::OomKilled);
    let (after, unseen) = (waiting(&world).await, waiting(&world).await);

    let world = world.restart().await;
    assert_eq!(go(&world, &after).await.status, ExecStatus::Failed);
    let fresh = world.run(&container, "kill -9 $$").await;
    assert_eq!(fresh.view.status, ExecStatus::Failed);
    assert_eq!(go(&world, &before).await.status, ExecStatus::OomKilled);

    let meanwhile = async || oom_kills.store(2, Ordering::Relaxed);
    let world = world.restart_after(meanwhile).await;
    assert_eq!(go(&world, &unseen).await.status, ExecStatus::OomKilled);
    // An exec requested afterwards is not affected.
    let fresh = world.run(&container, "kill -9 $$").await;
    assert_eq!(fresh.view.status, ExecStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_memory_killed_takes_its_execs_with_it() {
    let (world, container, oom_kills) = starving().await;
    let id = world.start(&container, sh("echo here; sleep 1000")).await;
    world.until_wrote(&id, "here").await;
    oom_kills.store(1, Ordering::Relaxed);
    let agent = world.root(&container).with_file_name("process");
    let agent = std::fs::read_to_string(agent).unwrap();
    // A container's processes end with its agent; those of the fake engine have to be killed.
    let mut tree = vec![agent.split_whitespace().next().unwrap().to_owned()];
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        tree.extend(children.split_whitespace().map(str::to_owned));
        next += 1;
    }
    let killed = std::process::Command::new("kill")
        .arg("-9")
        .args(&tree)
        .status();
    assert!(killed.unwrap().success());
    let ended = world.finish(&id).await;
    assert_eq!(ended.view.status, ExecStatus::OomKilled);
    assert_eq!(ended.stdout, b"here\n");
}
