//! A server that dies while it has a pool, and the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use hotcell_domain::{ContainerId, Phase};
use hotcell_engine::Engine as _;
use hotcell_service::{Reconciled, Spawn};

use crate::ground::{Ground, ids, keyed, me, persistent, until};
use crate::pool::{until_ready, warm_ground};

/// What the store knows while no server runs: those that are somebody's, and those that are
/// nobody's.
async fn noted(ground: &Ground) -> (BTreeSet<ContainerId>, BTreeSet<ContainerId>) {
    let store = ground.store().await;
    let owned = store.living_containers().await.expect("it lists");
    let warm = store.warm().await.expect("it lists");
    (
        owned.into_iter().map(|row| row.id).collect(),
        warm.into_iter().map(|row| row.id).collect(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_finds_the_pool_again() {
    let ground = warm_ground(3);
    let service = ground.start().await;
    until_ready(&service, 3).await;
    let held = ground.held().await;
    drop(service);
    let service = ground.start().await;
    until_ready(&service, 3).await;
    assert_eq!(ground.held().await, held);
    let reconciled = service.status().await.unwrap().reconciled.unwrap().1;
    assert_eq!(reconciled, Reconciled::default());
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert!(view.is_warm && held.contains(&view.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_wanted_any_more_is_removed_and_adopted_by_nobody() {
    let mut ground = warm_ground(3);
    let service = ground.start().await;
    until_ready(&service, 3).await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    until_ready(&service, 3).await;
    drop(service);
    let warm = ground.settings.warm.clone();
    for wanted in [1, 0] {
        ground.settings.warm[0].wanted = wanted;
        let service = ground.start().await;
        ground.until_held(1 + wanted).await;
        let listed = service.containers(&me(), true).await.unwrap();
        assert_eq!(ids(&listed), std::slice::from_ref(&kept.id));
        assert_eq!(service.reconcile().await.unwrap().adopted, 0);
    }
    assert_eq!(ground.held().await, [kept.id]);
    // Other limits are another stock.
    ground.settings.warm = warm;
    let service = ground.start().await;
    until_ready(&service, 3).await;
    let before: BTreeSet<_> = ground.held().await.into_iter().collect();
    drop(service);
    ground.settings.default_limits.pids = hotcell_domain::Pids::new(64).unwrap();
    let service = ground.start().await;
    until("only new ones are ready", async || {
        let held: BTreeSet<_> = ground.held().await.into_iter().collect();
        held.len() == 4 && held.intersection(&before).count() == 1
    })
    .await;
    until_ready(&service, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_vanished_ones_are_replaced() {
    let ground = warm_ground(3);
    let service = ground.start().await;
    until_ready(&service, 3).await;
    let held = ground.held().await;
    drop(service);
    let store = ground.store().await;
    ground.engine().destroy(&held[0]).await.unwrap();
    ground.engine().crash(&held[1]).await.unwrap();
    drop(store);
    let service = ground.start().await;
    until("the living one is kept and two are new", async || {
        let now = ground.held().await;
        now.len() == 3 && now[0] == held[2]
    })
    .await;
    until_ready(&service, 3).await;
    assert_eq!(service.containers(&me(), true).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_at_any_moment_leaves_each_container_with_one_owner() {
    for after_us in (0..12).map(|step| step * 1700) {
        let ground = warm_ground(2);
        let service = ground.start().await;
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
        drop(service);

        let (owned, warm) = noted(&ground).await;
        assert!(owned.is_disjoint(&warm), "after {after_us} us");
        let held: BTreeSet<_> = ground.held().await.into_iter().collect();
        let strangers: Vec<_> = held
            .iter()
            .filter(|id| !owned.contains(id) && !warm.contains(id))
            .collect();
        assert!(strangers.is_empty(), "after {after_us} us: {strangers:?}");

        let service = ground.start().await;
        let view = service.spawn(&me(), keyed("0")).await.unwrap();
        assert_eq!(view.phase, Phase::Running, "after {after_us} us");
        until_ready(&service, 2).await;
        let reconciled = service.reconcile().await.unwrap();
        assert_eq!(reconciled.adopted, 0, "after {after_us} us");
        let listed = service.containers(&me(), false).await.unwrap();
        ground.until_held(listed.len() + 2).await;
        service.stop(Duration::ZERO).await;
        ground.assert_empty().await;
    }
}
