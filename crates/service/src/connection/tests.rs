//! Connections that hang, break, or lead to another agent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerSpec, EngineId};
use hotcell_engine::{
    Abandonment, AgentStream, Capabilities, Container, Garbage, Pull, ReadyImage, SweepMode, Swept,
};

use super::*;

/// An engine that can only open streams, each as prescribed.
struct Door {
    opens: AtomicUsize,
    ways: Mutex<VecDeque<Way>>,
}

enum Way {
    Never,
    Refused,
    /// The engine does not exist, and finding out takes a moment.
    Away,
    Garbage,
}

impl Door {
    fn new(ways: impl IntoIterator<Item = Way>) -> Arc<Self> {
        Arc::new(Self {
            opens: AtomicUsize::new(0),
            ways: Mutex::new(ways.into_iter().collect()),
        })
    }

    fn opens(&self) -> usize {
        self.opens.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Engine for Door {
    fn identity(&self) -> EngineId {
        EngineId::named("door")
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        Err(EngineError::Exhausted { resource: "all" })
    }

    async fn fetch_image(
        &self,
        _: &Admitted<ContainerSpec>,
        _: Pull<'_>,
        _: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        Err(EngineError::Exhausted { resource: "all" })
    }

    async fn create(
        &self,
        _: &ContainerId,
        _: &Admitted<ContainerSpec>,
        _: ReadyImage,
        _: &Abandonment,
    ) -> Result<Container, EngineError> {
        Err(EngineError::Exhausted { resource: "all" })
    }

    async fn restart(&self, id: &ContainerId, _: &Abandonment) -> Result<Container, EngineError> {
        Err(EngineError::NotFound { id: id.clone() })
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        self.opens.fetch_add(1, Ordering::SeqCst);
        let way = self.ways.lock().unwrap().pop_front();
        match way {
            Some(Way::Never) => std::future::pending().await,
            Some(Way::Refused) => Err(EngineError::engine("open")("refused")),
            Some(Way::Away) => {
                tokio::time::sleep(RECONNECT_PAUSE).await;
                Err(EngineError::Unavailable {
                    engine: "door",
                    hint: "start it",
                    source: "gone".into(),
                })
            }
            Some(Way::Garbage) => Ok(AgentStream::new(std::io::Cursor::new(vec![0; 4096]))),
            None => Err(EngineError::NotFound { id: id.clone() }),
        }
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        Err(EngineError::NotFound { id: id.clone() })
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        Ok(Vec::new())
    }

    async fn destroy(&self, _: &ContainerId) -> Result<(), EngineError> {
        Ok(())
    }

    async fn exited(&self, _: &ContainerId) -> Result<(), EngineError> {
        Ok(())
    }

    async fn sweep(&self, _: Garbage, _: SweepMode) -> Result<Swept, EngineError> {
        Ok(Swept::default())
    }
}

fn connection(door: &Arc<Door>) -> Arc<Connection> {
    let id = ContainerId::from_parts(1, [0; 10]);
    let engine = Arc::clone(door) as Arc<dyn Engine>;
    let metrics = crate::metrics::Metrics::default().agent;
    Arc::new(Connection::new(engine, id, metrics))
}

fn is_unavailable(result: &Result<Connected, ServiceError>) -> bool {
    matches!(result, Err(ServiceError::Unavailable { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_container_that_hangs_costs_everybody_one_attempt_together() {
    let door = Door::new([Way::Never, Way::Never]);
    let connection = connection(&door);
    let began = Instant::now();
    let asks: Vec<_> = (0..50)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.get().await })
        })
        .collect();
    for ask in asks {
        assert!(is_unavailable(&ask.await.unwrap()));
    }
    assert_eq!(door.opens(), 1);
    assert!(began.elapsed() <= CONNECT_TIMEOUT + RECONNECT_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_anothers_attempt_hears_why_it_failed() {
    let door = Door::new([Way::Away]);
    let connection = connection(&door);
    let (first, second) = tokio::join!(connection.get(), connection.get());
    let said = [first, second].map(|answer| answer.unwrap_err().to_string());
    assert!(said[0].contains("start it"), "{said:?}");
    assert_eq!(said[0], said[1]);
    assert_eq!(door.opens(), 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_have_a_pause_between_them() {
    let door = Door::new((0..5).map(|_| Way::Refused));
    let connection = connection(&door);
    let began = Instant::now();
    for _ in 0..5 {
        assert!(is_unavailable(&connection.get().await));
    }
    assert_eq!(door.opens(), 5);
    assert_eq!(began.elapsed(), RECONNECT_PAUSE * 4);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_its_asker_gave_up_does_not_hold_up_the_next() {
    let door = Door::new([Way::Never, Way::Refused]);
    let connection = connection(&door);
    let second = Duration::from_secs(1);
    assert!(
        tokio::time::timeout(second, connection.get())
            .await
            .is_err()
    );
    let began = Instant::now();
    assert!(is_unavailable(&connection.get().await));
    assert!(began.elapsed() < second);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_the_engine_does_not_have_is_not_found() {
    let answer = connection(&Door::new([])).get().await;
    assert!(
        matches!(answer, Err(ServiceError::NotFound { .. })),
        "{answer:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_talks_nonsense_is_not_connected_to() {
    let connection = connection(&Door::new([Way::Garbage]));
    assert!(is_unavailable(&connection.get().await));
}

#[tokio::test(start_paused = true)]
async fn a_distrusted_container_is_asked_nothing_more() {
    let door = Door::new([Way::Refused]);
    let connection = connection(&door);
    connection.distrust("it broke the protocol");
    assert_eq!(connection.distrusted().await, "it broke the protocol");
    assert!(is_unavailable(&connection.get().await));
    assert_eq!(door.opens(), 0);
}
