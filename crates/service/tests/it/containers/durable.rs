//! Which containers are synced to disk, so that they survive a power cut.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Limits, Pids};
use hotcell_engine::Engine;
use hotcell_service::Spawn;

use super::faulty_engine::FaultyEngine;
use super::pool::{until_ready, warm_ground};
use crate::fixture::{Fixture, by_id, me, persistent, until};

fn small(is_persistent: bool) -> Spawn {
    Spawn {
        limits: Some(Limits {
            pids: Pids::new(64).expect("few"),
            ..Limits::default()
        }),
        is_persistent,
        ..Spawn::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn persistent_containers_are_brought_to_the_disk_once_and_others_never() {
    let fixture = warm_ground(1);
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    until_ready(&service, 1).await;
    service.spawn(&me(), small(false)).await.unwrap();
    let warm = service.spawn(&me(), persistent()).await.unwrap();
    assert!(warm.is_warm);
    let on_disk = async |count| {
        until("so many are on the disk", async || {
            engine.synced().len() >= count
        })
        .await;
        engine.synced()
    };
    assert_eq!(on_disk(1).await, slice::from_ref(&warm.id));
    let made = service.spawn(&me(), small(true)).await.unwrap();
    assert!(!made.is_warm);
    assert_eq!(on_disk(2).await, [warm.id, made.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_brings_to_the_disk_what_is_new_and_still_there() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    service.spawn(&me(), Spawn::default()).await.unwrap();
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    service.stop(Duration::ZERO).await;
    assert_eq!(engine.synced(), slice::from_ref(&kept.id));
    drop(service);

    // The next one finds it there.
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let killed = service.spawn(&me(), persistent()).await.unwrap();
    service.kill(&me(), &by_id(&killed), true).await.unwrap();
    service.stop(Duration::ZERO).await;
    assert!(!engine.synced().contains(&kept.id));
}
