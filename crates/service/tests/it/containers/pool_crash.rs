//! A server that dies with a warm pool, and the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use hotcell_domain::{ContainerId, Phase};
use hotcell_engine::Engine as _;
use hotcell_service::{Reconciled, Service, Spawn};

use super::pool::{until_ready, warm_ground};
use crate::fixture::{Fixture, keyed, me, persistent};

/// What the store has after the server died: owned and warm containers.
async fn noted(
    fixture: &Fixture,
    service: Service,
) -> (BTreeSet<ContainerId>, BTreeSet<ContainerId>) {
    drop(service);
    let store = fixture.store().await;
    let owned = store.active_containers().await.expect("it lists");
    let warm = store.warm().await.expect("it lists");
    (
        owned.into_iter().map(|row| row.id).collect(),
        warm.into_iter().map(|row| row.id).collect(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_hands_out_nothing_that_another_made() {
    let fixture = warm_ground(3);
    let service = fixture.start().await;
    until_ready(&service, 3).await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    until_ready(&service, 3).await;
    let left: BTreeSet<_> = noted(&fixture, service).await.1;
    assert_eq!(left.len(), 3);

    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert!(!left.contains(&view.id));
    until_ready(&service, 3).await;
    fixture.until_held(5).await;
    let held: BTreeSet<_> = fixture.held().await.into_iter().collect();
    assert!(held.is_disjoint(&left) && held.contains(&kept.id));
    let reconciled = service.status(&me()).await.unwrap().reconciled.unwrap().1;
    let expected = Reconciled {
        discovered: 1,
        ..Reconciled::default()
    };
    assert_eq!(reconciled, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_vanished_ones_are_forgotten() {
    let mut fixture = warm_ground(3);
    let service = fixture.start().await;
    until_ready(&service, 3).await;
    let held = fixture.held().await;
    drop(service);
    let store = fixture.store().await;
    fixture.engine().destroy(&held[0]).await.unwrap();
    fixture.engine().crash(&held[1]).await.unwrap();
    drop(store);
    fixture.settings.warm = Vec::new();
    let service = fixture.start().await;
    fixture.until_held(0).await;
    assert_eq!(service.containers(&me(), true).await.unwrap(), []);
    service.stop(Duration::ZERO).await;
    assert_eq!(noted(&fixture, service).await, Default::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_at_any_moment_leaves_each_container_with_one_owner() {
    for after_us in (0..12).map(|step| step * 1700) {
        let fixture = warm_ground(2);
        let service = fixture.start().await;
        if after_us % 3400 == 0 {
            until_ready(&service, 2).await;
        }
        let spawns = (0..4).map(|number| {
            let service = service.clone();
            tokio::spawn(async move { service.spawn(&me(), keyed(&number.to_string())).await })
        });
        let spawns: Vec<_> = spawns.collect();
        let _ = tokio::time::timeout(Duration::from_micros(after_us), async {
            service.spawn(&me(), keyed("0")).await
        })
        .await;
        for spawn in spawns {
            spawn.abort();
            let _ = spawn.await;
        }
        let (owned, warm) = noted(&fixture, service).await;
        assert!(owned.is_disjoint(&warm), "after {after_us} us");
        let held: BTreeSet<_> = fixture.held().await.into_iter().collect();
        let strangers: Vec<_> = held
            .iter()
            .filter(|id| !owned.contains(id) && !warm.contains(id))
            .collect();
        assert!(strangers.is_empty(), "after {after_us} us: {strangers:?}");

        let service = fixture.start().await;
        let view = service.spawn(&me(), keyed("0")).await.unwrap();
        assert_eq!(view.phase, Phase::Running, "after {after_us} us");
        until_ready(&service, 2).await;
        let reconciled = service.reconcile(&me()).await.unwrap();
        assert_eq!(reconciled.adopted, 0, "after {after_us} us");
        let listed = service.containers(&me(), false).await.unwrap();
        fixture.until_held(listed.len() + 2).await;
        service.stop(Duration::ZERO).await;
        fixture.assert_empty().await;
    }
}
