//! Tags that move to another image while warm containers exist.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotcell_engine::Engine;
use hotcell_service::{PoolView, Service, Spawn};

use super::faulty_engine::FaultyEngine;
use super::pool::{stock, until_ready, warm_ground};
use crate::fixture::{DEADLINE, Fixture, me, until};

/// The image of a new container, and whether it was warm.
async fn spawn(service: &Service) -> (String, bool) {
    let caller = me();
    let spawned = service.spawn(&caller, Spawn::default());
    let spawned = tokio::time::timeout(DEADLINE, spawned).await;
    let view = spawned.expect("in time").unwrap();
    (view.image_digest.unwrap_or_default(), view.is_warm)
}

/// An engine whose tags refer to this image.
fn tagged_ground(wanted: usize, image_id: &str) -> Fixture {
    let fixture = warm_ground(wanted);
    fixture.engine().tag(image_id).unwrap();
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_out_is_of_the_image_that_its_name_stands_for_now() {
    let fixture = tagged_ground(3, "one");
    let service = fixture.start().await;
    until_ready(&service, 3).await;
    assert_eq!(spawn(&service).await, ("one".to_owned(), true));
    until_ready(&service, 3).await;

    let old = fixture.held().await;
    fixture.engine().tag("two").unwrap();
    assert_eq!(spawn(&service).await, ("two".to_owned(), false));
    until("all that was ready is replaced", async || {
        let held = fixture.held().await;
        let left = held.iter().filter(|id| old.contains(id)).count();
        // The first is somebody's.
        stock(&service).await.ready == 3 && left == 1
    })
    .await;
    for _ in 0..3 {
        assert_eq!(spawn(&service).await, ("two".to_owned(), true));
    }
    let PoolView { hits, misses, .. } = stock(&service).await;
    assert_eq!((hits, misses), (4, 1));
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
    drop(service);
    assert_eq!(fixture.store().await.warm().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_an_older_image_are_replaced_before_anybody_asks() {
    let mut fixture = tagged_ground(2, "one");
    fixture.settings.warm_check_interval = Duration::from_millis(20);
    let service = fixture.start().await;
    until_ready(&service, 2).await;
    let old = fixture.held().await;
    fixture.engine().tag("two").unwrap();
    until("others are ready", async || {
        let held = fixture.held().await;
        let is_left = held.iter().any(|id| old.contains(id));
        stock(&service).await.ready == 2 && !is_left
    })
    .await;
    assert_eq!(spawn(&service).await, ("two".to_owned(), true));
    let PoolView { hits, misses, .. } = stock(&service).await;
    assert_eq!((hits, misses), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_an_engine_does_not_say_what_an_image_is_nothing_ready_is_handed_out() {
    let fixture = tagged_ground(1, "one");
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    until_ready(&service, 1).await;
    let ready = fixture.held().await;
    let odd: [&AtomicBool; 2] = [&engine.is_away, &engine.is_silent];
    for fault in odd {
        fault.store(true, Ordering::SeqCst);
        assert_eq!(spawn(&service).await, ("one".to_owned(), false));
        fault.store(false, Ordering::SeqCst);
    }
    assert_eq!(stock(&service).await.ready, 1);
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert!(view.is_warm && ready.contains(&view.id));
}
