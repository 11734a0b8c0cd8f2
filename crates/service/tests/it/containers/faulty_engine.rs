//! Engines that misbehave.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::{
    Admitted, ContainerId, ContainerSpec, EngineId, ImageRef, Lifetime, Phase, Policy,
};
use hotcell_engine::{
    Abandonment, AgentStream, Capabilities, Container, Engine, EngineError, Garbage, Pull,
    ReadyImage, SweepMode, Swept, fetch_and_create,
};
use hotcell_service::{FilePath, Reconciled, ServiceError, Spawn};
use hotcell_testkit::fake::Fake;

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::fixture::{Fixture, by_id, me, named, until};

/// The buffer of a stream.
const STREAM_BYTES: usize = 64 << 10;

/// The fake engine with adjustable misbehaviour.
pub(crate) struct FaultyEngine {
    fake: Fake,
    name: &'static str,
    /// The address it reports.
    host: Option<&'static str>,
    /// Removes nothing.
    pub(crate) keeps: AtomicBool,
    /// Reports that its containers end with their owner.
    is_run_s: AtomicBool,
    /// Never answers calls.
    pub(crate) hangs: AtomicBool,
    /// Never answers queries about an image.
    pub(crate) is_silent: AtomicBool,
    /// Is unreachable for removals and queries about an image.
    pub(crate) is_away: AtomicBool,
    /// How many removals were requested.
    pub(crate) destroys: AtomicUsize,
    /// Leftovers of dead processes that it reports.
    pub(crate) leftovers: usize,
    /// Leftovers of images that it reports.
    pub(crate) image_leftovers: usize,
    /// Whether its image is present.
    has_image: AtomicBool,
    /// Reports that it is full.
    pub(crate) is_full: AtomicBool,
    /// How many creations were requested.
    pub(crate) creates: AtomicUsize,
    /// Creations that it stopped because they were abandoned.
    pub(crate) abandoned: AtomicUsize,
    /// How many restarts were requested.
    pub(crate) restarts: AtomicUsize,
    /// Does not tell that a container exited.
    pub(crate) is_blind: watch::Sender<bool>,
    /// How many streams were requested.
    pub(crate) opens: AtomicUsize,
    /// Containers it was asked to sync.
    synced: Mutex<Vec<ContainerId>>,
    /// Every stream leads to this container.
    astray: Mutex<Option<ContainerId>>,
    /// The tasks that carry its streams.
    carriers: Mutex<Vec<AbortHandle>>,
}

impl FaultyEngine {
    pub(crate) fn new(fixture: &Fixture) -> Arc<Self> {
        Self::with("fake", None, fixture)
    }

    pub(crate) fn named(name: &'static str, fixture: &Fixture) -> Arc<Self> {
        Self::with(name, None, fixture)
    }

    pub(crate) fn at(host: &'static str, fixture: &Fixture) -> Arc<Self> {
        Self::with("fake", Some(host), fixture)
    }

    fn with(name: &'static str, host: Option<&'static str>, fixture: &Fixture) -> Arc<Self> {
        Arc::new(Self {
            fake: fixture.engine(),
            name,
            host,
            keeps: AtomicBool::new(false),
            is_run_s: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            destroys: AtomicUsize::new(0),
            leftovers: 3,
            image_leftovers: 2,
            has_image: AtomicBool::new(true),
            is_full: AtomicBool::new(false),
            creates: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            restarts: AtomicUsize::new(0),
            is_blind: watch::Sender::new(false),
            opens: AtomicUsize::new(0),
            synced: Mutex::default(),
            astray: Mutex::default(),
            carriers: Mutex::default(),
        })
    }

    /// Containers it was asked to sync, in order.
    pub(crate) fn synced(&self) -> Vec<ContainerId> {
        self.synced
            .lock()
            .expect("no test panicked with it")
            .clone()
    }

    /// Cuts all streams, and redirects later ones.
    async fn lead_astray(&self, to: &ContainerId) {
        *self.astray.lock().expect("no test panicked with it") = Some(to.clone());
        let carriers =
            std::mem::take(&mut *self.carriers.lock().expect("no test panicked with it"));
        for carrier in carriers {
            carrier.abort();
            until("a stream is cut", async || carrier.is_finished()).await;
        }
    }

    async fn hang(&self) {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn answer(&self) -> Result<(), EngineError> {
        if !self.is_away.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(EngineError::Unavailable {
            engine: "fake",
            hint: "wait for the test",
            source: "it is away".into(),
        })
    }

    fn describe(&self, mut container: Container) -> Container {
        if self.is_run_s.load(Ordering::SeqCst) {
            container.lifetime = Lifetime::WithOwner;
        }
        container
    }
}

#[async_trait]
impl Engine for FaultyEngine {
    fn identity(&self) -> EngineId {
        EngineId {
            name: self.name.to_owned(),
            host: self.host.map(str::to_owned),
        }
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        if matches!(pull, Pull::IfMissing(_)) {
            return self.fake.fetch_image(spec, pull, abandonment).await;
        }
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.answer()?;
        self.fake.fetch_image(spec, pull, abandonment).await
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            biased;
            () = self.hang() => {}
            () = abandonment.abandoned() => {
                self.abandoned.fetch_add(1, Ordering::SeqCst);
                return Err(EngineError::Abandoned);
            }
        }
        if self.is_full.load(Ordering::SeqCst) {
            return Err(EngineError::Exhausted { resource: "ids" });
        }
        self.fake.create(id, spec, image, abandonment).await
    }

    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        self.restarts.fetch_add(1, Ordering::SeqCst);
        if self.is_full.load(Ordering::SeqCst) {
            return Err(EngineError::Exhausted { resource: "ids" });
        }
        self.fake.restart(id, abandonment).await
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        self.opens.fetch_add(1, Ordering::SeqCst);
        let astray = self
            .astray
            .lock()
            .expect("no test panicked with it")
            .clone();
        let mut stream = self.fake.open(astray.as_ref().unwrap_or(id)).await?;
        let (near, mut far) = tokio::io::duplex(STREAM_BYTES);
        let carry = async move {
            let _ = tokio::io::copy_bidirectional(&mut far, &mut stream).await;
        };
        let carrier = tokio::spawn(carry).abort_handle();
        self.carriers
            .lock()
            .expect("no test panicked with it")
            .push(carrier);
        Ok(AgentStream::new(near))
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        self.hang().await;
        Ok(self.describe(self.fake.inspect(id).await?))
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.hang().await;
        let all = self.fake.list().await?.into_iter();
        Ok(all.map(|one| self.describe(one)).collect())
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.destroys.fetch_add(1, Ordering::SeqCst);
        self.hang().await;
        self.answer()?;
        if self.keeps.load(Ordering::SeqCst) {
            return Err(EngineError::engine("remove the cgroup")("it is busy"));
        }
        self.fake.destroy(id).await
    }

    async fn sync(&self, ids: &[ContainerId]) -> Result<(), EngineError> {
        self.synced
            .lock()
            .expect("no test panicked with it")
            .extend_from_slice(ids);
        self.fake.sync(ids).await
    }

    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.fake.exited(id).await?;
        let mut is_blind = self.is_blind.subscribe();
        let _ = is_blind.wait_for(|is_blind| !is_blind).await;
        Ok(())
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        self.fake.capabilities().await
    }

    /// It has one image, unused for a day, and parts of others.
    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError> {
        let Garbage::Images { unused_for } = garbage else {
            return Ok(Swept::leftovers(self.leftovers));
        };
        let is_idle = unused_for.is_some_and(|idle| idle <= Duration::from_hours(24));
        let has_image = self.has_image.load(Ordering::SeqCst);
        let goes = is_idle && has_image;
        self.has_image.store(
            has_image && (mode == SweepMode::Count || !goes),
            Ordering::SeqCst,
        );
        Ok(Swept {
            images: usize::from(goes),
            leftovers: self.image_leftovers,
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_cannot_be_removed_stays_visible_until_it_can() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    engine.keeps.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let failed = service.kill(&me(), &by_id(&view), true).await;
        assert!(
            matches!(failed, Err(ServiceError::Internal { .. })),
            "{failed:?}"
        );
        let listed = service.containers(&me(), false).await.unwrap();
        assert_eq!((listed.len(), listed[0].phase), (1, Phase::Stopping));
        let taken = service.spawn(&me(), named("box")).await;
        assert!(
            matches!(taken, Err(ServiceError::AlreadyExists { .. })),
            "{taken:?}"
        );
    }
    engine.keeps.store(false, Ordering::SeqCst);
    service.kill(&me(), &by_id(&view), false).await.unwrap();
    fixture.assert_empty().await;
    service.spawn(&me(), named("box")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stop_could_not_remove_is_removed_by_the_next_server() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    service.spawn(&me(), Spawn::default()).await.unwrap();
    engine.keeps.store(true, Ordering::SeqCst);
    service.stop(Duration::ZERO).await;
    drop(service);
    assert_eq!(fixture.held().await.len(), 1);

    let service = fixture.start().await;
    fixture.until_held(0).await;
    until("it is noted as stopped", async || {
        let all = service.containers(&me(), true).await.unwrap();
        all.len() == 1 && all[0].phase == Phase::Stopped
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_end_with_their_owner_are_left_alone() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    engine.is_run_s.store(true, Ordering::SeqCst);
    let spec = Policy::default()
        .admit(ContainerSpec::new(ImageRef::Host))
        .unwrap();
    let theirs = ContainerId::from_parts(1, [3; 10]);
    let half_made = ContainerId::from_parts(2, [3; 10]);
    fetch_and_create(&*engine, &theirs, &spec).await.unwrap();
    std::fs::create_dir_all(fixture.directory(&half_made)).unwrap();

    let service = fixture.start_on(engine).await;
    assert_eq!(
        service.reconcile(&me()).await.unwrap(),
        Reconciled::default()
    );
    service.collect_garbage(&me(), false).await.unwrap();
    service.stop(Duration::ZERO).await;
    assert_eq!(fixture.held().await, [theirs, half_made]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_full_says_so_to_everyone_who_waits() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    engine.is_full.store(true, Ordering::SeqCst);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let spawns = (0..8).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), crate::fixture::keyed("k")).await })
    });
    for spawn in spawns.collect::<Vec<_>>() {
        let refused = spawn.await.unwrap();
        assert!(
            matches!(refused, Err(ServiceError::Exhausted { .. })),
            "{refused:?}"
        );
    }
    engine.is_full.store(false, Ordering::SeqCst);
    service
        .spawn(&me(), crate::fixture::keyed("k"))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_behind_which_another_agent_answers_has_failed() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    let other = service.spawn(&me(), Spawn::default()).await.unwrap();
    let root = FilePath::parse(b".").unwrap();
    service
        .file_stat(&me(), &by_id(&view), &root)
        .await
        .unwrap();

    engine.lead_astray(&other.id).await;
    until("it has failed", async || {
        let stat = service.file_stat(&me(), &by_id(&view), &root).await;
        assert!(stat.is_err(), "it was believed");
        let all = service.containers(&me(), true).await.unwrap();
        let failed = all.iter().filter(|view| view.phase == Phase::Failed);
        failed.map(|view| view.id.clone()).collect::<Vec<_>>() == [view.id.clone()]
    })
    .await;
    // The other container answers and works.
    service
        .file_stat(&me(), &by_id(&other), &root)
        .await
        .unwrap();
    fixture.until_held(1).await;
    assert_eq!(fixture.held().await, [other.id]);
}
