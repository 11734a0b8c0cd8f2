//! Containers that are ready before they are asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use hotcell_domain::{ContainerId, Env, ImageRef, Limits, Pids};
use hotcell_engine::Engine as _;
use hotcell_service::{PoolSpec, PoolView, Reconciled, Service, ServiceError, Spawn};

use crate::fixture::{Fixture, by_id, ids, keyed, me, named, persistent, somebody_else, until};

/// A fixture on which containers of the default kind are kept ready.
pub(crate) fn warm_ground(wanted: usize) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.settings.warm = vec![PoolSpec {
        image: ImageRef::Host,
        wanted,
        limits: None,
    }];
    fixture
}

pub(crate) async fn stock(service: &Service) -> PoolView {
    service.status(&me()).await.expect("it tells").warm[0].clone()
}

pub(crate) async fn until_ready(service: &Service, count: u64) {
    let is_so = async || stock(service).await.ready == count;
    until("so many are ready", is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_container_is_handed_out_and_replaced() {
    let fixture = warm_ground(2);
    let service = fixture.start().await;
    until_ready(&service, 2).await;
    let ready: BTreeSet<_> = fixture.held().await.into_iter().collect();
    assert_eq!(service.containers(&me(), true).await.unwrap(), []);
    assert_eq!(service.status(&me()).await.unwrap().containers, 0);

    let view = service.spawn(&me(), named("box")).await.unwrap();
    assert!(view.is_warm && ready.contains(&view.id));
    let listed = service.containers(&me(), false).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&view));
    until_ready(&service, 2).await;
    assert_eq!(fixture.held().await.len(), 3);
    let expected = PoolView {
        image: ImageRef::Host,
        limits: Limits::default(),
        wanted: 2,
        ready: 2,
        hits: 1,
        misses: 0,
    };
    assert_eq!(stock(&service).await, expected);
    let text = service.metrics_text(&me());
    for line in [
        "hotcell_warm_containers 2",
        "hotcell_warm_wanted 2",
        "hotcell_warm_hits_total 1",
        "hotcell_warm_misses_total 0",
        "hotcell_warm_age_seconds_count 1",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in:\n{text}");
    }

    service.kill(&me(), &by_id(&view), false).await.unwrap();
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
    drop(service);
    assert_eq!(fixture.store().await.warm().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_is_handed_out_twice() {
    const SPAWNS: u64 = 100;
    let fixture = warm_ground(8);
    let service = fixture.start().await;
    until_ready(&service, 8).await;
    let spawns = (0..SPAWNS).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), Spawn::default()).await })
    });
    let mut made = BTreeSet::new();
    let mut warm = 0;
    for spawn in spawns.collect::<Vec<_>>() {
        let view = spawn.await.unwrap().unwrap();
        warm += u64::from(view.is_warm);
        assert!(made.insert(view.id), "one was handed out twice");
    }
    let PoolView { hits, misses, .. } = stock(&service).await;
    assert_eq!((hits, misses), (warm, SPAWNS - warm));
    assert!(warm >= 8, "{warm} were ready");
    let listed = ids(&service.containers(&me(), false).await.unwrap());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), made);
    until_ready(&service, 8).await;
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_no_stock_is_made_and_variables_do_not_matter() {
    let fixture = warm_ground(1);
    let service = fixture.start().await;
    until_ready(&service, 1).await;
    let few_pids = Limits {
        pids: Pids::new(64).unwrap(),
        ..Limits::default()
    };
    let small = Spawn {
        limits: Some(few_pids),
        ..Spawn::default()
    };
    assert!(!service.spawn(&me(), small).await.unwrap().is_warm);
    assert_eq!(stock(&service).await.misses, 0, "no stock is for it");
    let mut env = Env::default();
    env.set("A", "b").unwrap();
    let with_env = Spawn {
        env,
        ..Spawn::default()
    };
    assert!(service.spawn(&me(), with_env).await.unwrap().is_warm);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_loses_its_alias_leaves_the_container_ready() {
    let fixture = warm_ground(1);
    let service = fixture.start().await;
    until_ready(&service, 1).await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    until_ready(&service, 1).await;
    let held = fixture.held().await;
    for _ in 0..5 {
        let taken = service.spawn(&me(), named("box")).await;
        assert!(
            matches!(taken, Err(ServiceError::AlreadyExists { .. })),
            "{taken:?}"
        );
        assert_eq!(stock(&service).await.ready, 1);
    }
    assert_eq!(fixture.held().await, held);
    let PoolView { hits, misses, .. } = stock(&service).await;
    assert_eq!((hits, misses), (1, 0));
    let theirs = service.spawn(&somebody_else(), named("box")).await.unwrap();
    assert!(theirs.is_warm && theirs.id != view.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_leads_to_one_container_also_after_a_restart() {
    let fixture = warm_ground(4);
    let service = fixture.start().await;
    until_ready(&service, 4).await;
    let spawns = (0..32).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), keyed("k")).await })
    });
    let mut made: Vec<(ContainerId, bool)> = Vec::new();
    for spawn in spawns.collect::<Vec<_>>() {
        let view = spawn.await.unwrap().unwrap();
        made.push((view.id, view.is_warm));
    }
    made.dedup();
    assert_eq!(made.len(), 1);
    let PoolView { hits, misses, .. } = stock(&service).await;
    assert_eq!((hits, misses), if made[0].1 { (1, 0) } else { (0, 1) });
    until_ready(&service, 4).await;
    drop(service);
    let service = fixture.start().await;
    until_ready(&service, 4).await;
    let again = service.spawn(&me(), keyed("k")).await.unwrap();
    assert_eq!((again.id, again.is_warm), made[0]);
    assert_eq!(stock(&service).await.hits, 0);
    assert_eq!(fixture.held().await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_takes_from_no_quota() {
    let mut fixture = warm_ground(3);
    fixture.settings.quotas.default.containers = 1;
    let service = fixture.start().await;
    until_ready(&service, 3).await;
    service.spawn(&me(), Spawn::default()).await.unwrap();
    until_ready(&service, 3).await;
    let second = service.spawn(&me(), Spawn::default()).await;
    assert!(
        matches!(second, Err(ServiceError::OverQuota(_))),
        "{second:?}"
    );
    assert_eq!(stock(&service).await.ready, 3);
    assert_eq!(fixture.held().await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_and_garbage_collection_leave_the_pool_alone() {
    let fixture = warm_ground(2);
    let service = fixture.start().await;
    until_ready(&service, 2).await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    until_ready(&service, 2).await;
    let held = fixture.held().await;
    let expected = Reconciled {
        discovered: 1,
        ..Reconciled::default()
    };
    fixture.advance(Duration::from_hours(24 * 30));
    for _ in 0..3 {
        assert_eq!(service.reconcile(&me()).await.unwrap(), expected);
        service.collect_garbage(&me(), false).await.unwrap();
    }
    assert_eq!(fixture.held().await, held);
    assert_eq!(
        ids(&service.containers(&me(), true).await.unwrap()),
        [kept.id]
    );
    assert_eq!(stock(&service).await.ready, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_policy_refuses_is_not_kept_warm() {
    let mut fixture = warm_ground(1);
    fixture.settings.warm[0].image = ImageRef::parse("quay.io/a/b").unwrap();
    let engine = std::sync::Arc::new(fixture.engine());
    let store = fixture.store().await;
    let clock = std::sync::Arc::clone(&fixture.clock) as _;
    let random = std::sync::Arc::new(crate::fixture::Counting);
    let started = Service::start(engine, store, fixture.settings.clone(), clock, random).await;
    let refused = started.err().unwrap().to_string();
    assert_eq!(
        refused,
        "quay.io/a/b:latest cannot be kept warm: registry quay.io is not one of docker.io, ghcr.io (rule `allowed_registries`)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_with_limits_of_their_own_are_kept_ready_beside_the_default_ones() {
    let large = Limits {
        pids: Pids::new(999).unwrap(),
        ..Limits::default()
    };
    let mut fixture = warm_ground(1);
    fixture.settings.warm.push(PoolSpec {
        image: ImageRef::Host,
        wanted: 1,
        limits: Some(large),
    });
    let service = fixture.start().await;
    let is_ready = async || {
        let status = service.status(&me()).await.unwrap();
        status.warm.iter().all(|set| set.ready == 1)
    };
    until("both are ready", is_ready).await;
    for limits in [large, Limits::default()] {
        let request = Spawn {
            limits: Some(limits),
            ..Spawn::default()
        };
        let view = service.spawn(&me(), request).await.unwrap();
        assert!(view.is_warm);
        assert_eq!(view.limits, limits);
    }
    let held = fixture.engine().list().await.unwrap();
    let specs = held.into_iter().filter_map(|one| one.spec);
    let mut pids: Vec<_> = specs.map(|spec| spec.limits.pids.get()).collect();
    pids.sort_unstable();
    pids.dedup();
    let default = Limits::default().pids.get();
    assert_eq!(pids, [default, 999], "each was made with its own limits");
}
