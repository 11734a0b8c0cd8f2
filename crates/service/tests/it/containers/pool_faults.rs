//! Warm containers that die, and engines that create none.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotcell_domain::ContainerId;
use hotcell_engine::Engine;
use hotcell_service::{ServiceError, Spawn};
use hotcell_testkit::fake::Faults;

use super::faulty_engine::FaultyEngine;
use super::pool::{stock, until_ready, warm_ground};
use crate::fixture::{Fixture, me, until};

/// Stops the agent of a container, so that it hangs.
fn freeze(fixture: &Fixture, id: &ContainerId) {
    let directory = fixture.directory(id).display().to_string();
    for entry in std::fs::read_dir("/proc")
        .expect("proc is mounted")
        .flatten()
    {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&directory) {
            let pid = entry.file_name();
            let stopped = Command::new("kill").arg("-STOP").arg(pid).status();
            assert!(stopped.is_ok_and(|stopped| stopped.success()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_died_is_replaced() {
    let fixture = warm_ground(1);
    let service = fixture.start().await;
    until_ready(&service, 1).await;
    let dead = fixture.held().await[0].clone();
    fixture.engine().crash(&dead).await.unwrap();
    until("another is there", async || {
        let held = fixture.held().await;
        stock(&service).await.ready == 1 && held.len() == 1 && held[0] != dead
    })
    .await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert!(view.is_warm);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_hangs_is_not_handed_out() {
    let fixture = warm_ground(1);
    let service = fixture.start().await;
    until_ready(&service, 1).await;
    let hung = fixture.held().await[0].clone();
    freeze(&fixture, &hung);
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert_ne!(view.id, hung);
    until("it is gone", async || !fixture.held().await.contains(&hung)).await;
    until_ready(&service, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_hangs_is_found_and_replaced_before_anybody_asks() {
    let mut fixture = warm_ground(1);
    fixture.settings.warm_check_interval = Duration::from_millis(20);
    let service = fixture.start().await;
    until_ready(&service, 1).await;
    let hung = fixture.held().await[0].clone();
    freeze(&fixture, &hung);
    until("another is there", async || {
        let held = fixture.held().await;
        stock(&service).await.ready == 1 && held.len() == 1 && held[0] != hung
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_makes_none_is_asked_less_and_less_until_it_does() {
    let fixture = warm_ground(4);
    let engine = FaultyEngine::new(&fixture);
    engine.is_full.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    until("it is asked again", async || {
        engine.creates.load(Ordering::SeqCst) >= 5
    })
    .await;
    let least = Duration::from_millis(50 + 100 + 200 + 400);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    let refused = service.spawn(&me(), Spawn::default()).await;
    assert!(
        matches!(refused, Err(ServiceError::Exhausted { .. })),
        "{refused:?}"
    );
    engine.is_full.store(false, Ordering::SeqCst);
    // A container created for a caller shows that it works again.
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert!(!view.is_warm);
    until_ready(&service, 4).await;
    assert_eq!(stock(&service).await.misses, 2);
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_engine_does_wrong_the_pool_fills_and_leaves_nothing() {
    for seed in 0..8 {
        let mut fixture = Fixture::with_faults(Faults::from_seed(seed));
        fixture.settings.warm = warm_ground(2).settings.warm.clone();
        let service = fixture.start().await;
        until_ready(&service, 2).await;
        let mut spawned = service.spawn(&me(), Spawn::default()).await;
        for _ in 0..20 {
            if spawned.is_ok() {
                break;
            }
            spawned = service.spawn(&me(), Spawn::default()).await;
        }
        spawned.unwrap();
        service.stop(Duration::ZERO).await;
        fixture.assert_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stop_could_not_remove_is_the_next_servers_to_remove() {
    let fixture = warm_ground(2);
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    until_ready(&service, 2).await;
    engine.keeps.store(true, Ordering::SeqCst);
    service.stop(Duration::ZERO).await;
    drop(service);
    let left = fixture.held().await;
    assert_eq!(left.len(), 2);
    let service = fixture.start().await;
    until_ready(&service, 2).await;
    fixture.until_held(2).await;
    let held = fixture.held().await;
    assert!(!left.iter().any(|id| held.contains(id)));
    assert_eq!(service.containers(&me(), true).await.unwrap(), []);
}
