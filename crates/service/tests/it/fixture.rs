//! The fixture of these tests: a store and an engine in directories of their own, and a clock
//! that it sets. When it is dropped, nothing may be left that a test did not leave on
//! purpose; whatever is left is removed.

use std::fs;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use hotcell_domain::{Alias, Caller, ContainerId, ContainerRef, Name, Principal};
use hotcell_engine::Engine as _;
use hotcell_service::{
    Attached, Clock, ContainerView, Random, Service, ServiceError, Settings, Spawn,
};
use hotcell_store::{OpenError, Store};
use hotcell_testkit::fake::{Fake, Faults};
use tempfile::TempDir;

/// How long a test waits for what must happen: it only ends what hangs.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// Between two looks at something that tells nobody when it changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A clock that stands still until it is set.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Numbers in their order, so that ids sort by age while the clock stands still.
#[derive(Debug)]
pub(crate) struct Counting;

impl Random for Counting {
    fn bytes(&self) -> [u8; 10] {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let mut bytes = [0; 10];
        let number = LAST.fetch_add(1, Ordering::SeqCst);
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes
    }
}

/// A store and an engine.
pub(crate) struct Fixture {
    state: TempDir,
    pub(crate) containers: TempDir,
    pub clock: Arc<ManualClock>,
    pub settings: Settings,
    faults: Faults,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_faults(Faults::none())
    }

    pub(crate) fn with_faults(faults: Faults) -> Self {
        Self {
            state: tempfile::tempdir().expect("a directory can be made"),
            containers: tempfile::tempdir().expect("a directory can be made"),
            clock: Arc::new(ManualClock(AtomicU64::new(1_800_000_000_000))),
            settings: Settings {
                kill_grace: Duration::from_millis(200),
                ..Settings::default()
            },
            faults,
        }
    }

    /// Starts a service, as soon as an earlier one has let go of the state directory.
    pub(crate) async fn start(&self) -> Service {
        let engine = Fake::new(
            hotcell_testkit::agent::program(),
            self.containers.path().to_owned(),
            self.faults.clone(),
        );
        self.start_on(Arc::new(engine)).await
    }

    pub(crate) async fn start_on(&self, engine: Arc<dyn hotcell_engine::Engine>) -> Service {
        let store = self.store().await;
        let settings = self.settings.clone();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let service = Service::start(engine, store, settings, clock, Arc::new(Counting));
        service.await.expect("the service starts")
    }

    /// The store, as soon as nobody has it.
    pub(crate) async fn store(&self) -> Store {
        let began = Instant::now();
        loop {
            match Store::open(self.state.path()) {
                Ok(store) => return store,
                Err(OpenError::Locked { .. }) if began.elapsed() < DEADLINE => {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// The engine without its faults.
    pub(crate) fn engine(&self) -> Fake {
        Fake::new(
            hotcell_testkit::agent::program(),
            self.containers.path().to_owned(),
            Faults::none(),
        )
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).expect("a short time");
        self.clock.0.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Sets the clock back.
    pub(crate) fn set_back(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).expect("a short time");
        self.clock.0.fetch_sub(by_ms, Ordering::SeqCst);
    }

    /// Everything the engine holds.
    pub(crate) async fn held(&self) -> Vec<ContainerId> {
        let mut held: Vec<_> = self.engine().list().await.expect("it lists");
        held.sort_by(|one, other| one.id.cmp(&other.id));
        held.into_iter().map(|container| container.id).collect()
    }

    /// Waits until the engine holds exactly so many containers.
    pub(crate) async fn until_held(&self, count: usize) {
        until("the engine holds so many", async || {
            self.held().await.len() == count
        })
        .await;
    }

    /// Processes that name a directory of this engine.
    pub(crate) fn processes(&self) -> Vec<String> {
        let directory = self.containers.path().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&directory) {
                found.push(line);
            }
        }
        found
    }

    /// Nothing is left of any container.
    pub(crate) async fn assert_empty(&self) {
        assert_eq!(self.held().await, []);
        assert_eq!(self.processes(), Vec::<String>::new());
    }

    /// The directory of a container.
    pub(crate) fn directory(&self, id: &ContainerId) -> PathBuf {
        self.containers.path().join(id.as_str())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let engine = self.engine();
        let state = self.state.path().to_owned();
        let clear = move || {
            // A service that was dropped may still be making a container.
            let _alone = alone(&state);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                for container in engine.list().await.unwrap_or_default() {
                    let _ = engine.destroy(&container.id).await;
                }
            });
        };
        std::thread::spawn(clear).join().expect("it is cleared");
    }
}

/// The store, once no service has it any more; `None` if one does not let go of it.
fn alone(state: &Path) -> Option<Store> {
    let began = Instant::now();
    while began.elapsed() < DEADLINE {
        match Store::open(state) {
            Err(OpenError::Locked { .. }) => std::thread::sleep(LOOK_INTERVAL),
            opened => return opened.ok(),
        }
    }
    None
}

/// Begins something and gives it up where it waits for the first time.
pub(crate) async fn begin_and_drop(work: impl Future) {
    let mut work = std::pin::pin!(work);
    let waits = poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending()));
    assert!(waits.await, "it did not wait");
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < DEADLINE, "it did not become true: {what}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Uses a container as a client does.
pub(crate) async fn attach(
    service: &Service,
    target: &ContainerRef,
    session: &str,
) -> Result<(ContainerView, Attached), ServiceError> {
    let (client, session) = (name("client"), name(session));
    service.attach(&me(), target, client, session).await
}

pub(crate) fn me() -> Caller {
    Caller::local()
}

pub(crate) fn somebody_else() -> Caller {
    Caller {
        principal: Principal::new(name("somebody else")),
        ..Caller::local()
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

pub(crate) fn named(alias: &str) -> Spawn {
    Spawn {
        alias: Some(Alias::parse(alias).expect("an alias")),
        ..Spawn::default()
    }
}

pub(crate) fn keyed(key: &str) -> Spawn {
    Spawn {
        key: Some(name(key)),
        ..Spawn::default()
    }
}

pub(crate) fn persistent() -> Spawn {
    Spawn {
        is_persistent: true,
        ..Spawn::default()
    }
}

pub(crate) fn by_alias(alias: &str) -> ContainerRef {
    ContainerRef::Alias(Alias::parse(alias).expect("an alias"))
}

pub(crate) fn by_id(view: &ContainerView) -> ContainerRef {
    ContainerRef::Id(view.id.clone())
}

pub(crate) fn ids(views: &[ContainerView]) -> Vec<ContainerId> {
    views.iter().map(|view| view.id.clone()).collect()
}
