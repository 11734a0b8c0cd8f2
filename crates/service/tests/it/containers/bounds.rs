//! Slow engines: a request to end a container does not wait for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::Phase;
use hotcell_engine::Engine;
use hotcell_service::{ContainerView, Service, ServiceError, Spawn};
use tokio::task::JoinHandle;

use super::faulty_engine::FaultyEngine;
use crate::fixture::{Fixture, by_id, me, named, until};

/// An engine that never answers must not delay anyone beyond this.
const SOON: Duration = Duration::from_mins(1);

/// More than are ended concurrently.
const MANY: usize = 20;

/// Starts a creation that never finishes.
async fn begin(
    service: &Service,
    engine: &FaultyEngine,
) -> (
    JoinHandle<Result<ContainerView, ServiceError>>,
    ContainerView,
) {
    engine.hangs.store(true, Ordering::SeqCst);
    let spawning = {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), named("box")).await })
    };
    until("it is being made", async || {
        engine.creates.load(Ordering::SeqCst) == 1
    })
    .await;
    engine.hangs.store(false, Ordering::SeqCst);
    let listed = service.containers(&me(), false).await.expect("it lists");
    assert_eq!((listed.len(), listed[0].phase), (1, Phase::Creating));
    (spawning, listed[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_being_made_can_be_killed() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let (spawning, view) = begin(&service, &engine).await;
    let kill = async { service.kill(&me(), &by_id(&view), false).await };
    let killed = tokio::time::timeout(SOON, kill).await;
    killed.expect("in time").unwrap();
    let spawned = spawning.await.unwrap();
    assert!(
        matches!(spawned, Err(ServiceError::Unavailable { .. })),
        "{spawned:?}"
    );
    let told = engine.abandoned.load(Ordering::SeqCst);
    assert_eq!(told, 1, "the engine was told, and not cut off");
    fixture.assert_empty().await;
    let all = service.containers(&me(), true).await.unwrap();
    assert_eq!((all.len(), all[0].phase), (1, Phase::Stopped));
    service.spawn(&me(), named("box")).await.unwrap();
}

/// One carries the request to its end whether or not its caller waits; the other supervises the
/// container for all its life.
#[tokio::test(flavor = "multi_thread")]
async fn a_spawn_takes_two_tasks() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = alive();
    let (spawning, view) = begin(&service, &engine).await;
    let of_the_test = 1;
    assert_eq!(alive(), before + of_the_test + 2);
    service.kill(&me(), &by_id(&view), true).await.unwrap();
    assert!(spawning.await.unwrap().is_err());
    until("both have ended", async || alive() == before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_what_is_being_made() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let (spawning, _) = begin(&service, &engine).await;
    let stop = tokio::time::timeout(SOON, service.stop(Duration::ZERO));
    stop.await.expect("in time");
    assert!(spawning.await.unwrap().is_err());
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_on_an_engine_that_does_not_answer_leaves_the_rest_to_the_next_server() {
    let mut fixture = Fixture::new();
    fixture.settings.stop_timeout = Duration::from_millis(300);
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    for _ in 0..MANY {
        service.spawn(&me(), Spawn::default()).await.unwrap();
    }
    engine.hangs.store(true, Ordering::SeqCst);
    let stop = tokio::time::timeout(SOON, service.stop(Duration::ZERO));
    stop.await.expect("in time");
    drop(service);
    assert_eq!(fixture.held().await.len(), MANY);

    let service = fixture.start().await;
    fixture.until_held(0).await;
    until("all are noted as stopped", async || {
        let all = service.containers(&me(), true).await.unwrap();
        all.len() == MANY && all.iter().all(|view| view.phase == Phase::Stopped)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_is_asked_once_to_remove_a_container() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    engine.is_away.store(true, Ordering::SeqCst);
    let refused = service.kill(&me(), &by_id(&view), true).await;
    assert!(
        matches!(refused, Err(ServiceError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(engine.destroys.load(Ordering::SeqCst), 1);
    engine.is_away.store(false, Ordering::SeqCst);
    service.kill(&me(), &by_id(&view), true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_shown_although_their_engine_does_not_answer() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    engine.hangs.store(true, Ordering::SeqCst);
    let shown = async {
        let listed = service.containers(&me(), false).await.unwrap();
        assert_eq!(listed[0].id, view.id);
        service.container(&me(), &by_id(&view)).await.unwrap()
    };
    let shown = tokio::time::timeout(SOON, shown).await.expect("in time");
    assert_eq!(shown.phase, Phase::Running);
    engine.hangs.store(false, Ordering::SeqCst);
}
