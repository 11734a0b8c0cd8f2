//! What all containers may have together: never more, whoever comes and goes.

use std::time::Duration;

use hotcell_domain::{Bytes, Limits, Maxima, Pids, Share, Totals};
use hotcell_service::{Service, ServiceError, Spawn};
use hotcell_testkit::fake::Faults;

use super::pool::{until_ready, warm_ground};
use crate::fixture::{Fixture, by_id, me, persistent, somebody_else, until};

/// Each container of these tests holds a tenth of the total.
const EACH: u64 = 64 << 20;
const PLACES: u64 = 10;

fn limits(memory_bytes: u64) -> Limits {
    Limits {
        memory: Bytes::new(memory_bytes).expect("a limit"),
        pids: Pids::new(8).expect("a limit"),
        ..Limits::default()
    }
}

fn bounded(mut fixture: Fixture) -> Fixture {
    fixture.settings.default_limits = limits(EACH);
    fixture.settings.totals = Some(Totals {
        memory: Bytes::new(EACH * PLACES).expect("a limit"),
        pids: Pids::new(1000).expect("a limit"),
    });
    fixture
}

fn of_size(memory_bytes: u64) -> Spawn {
    Spawn {
        limits: Some(limits(memory_bytes)),
        ..Spawn::default()
    }
}

async fn held(service: &Service) -> Share {
    service.status(&me()).await.expect("it tells").held
}

/// So many containers' worth.
fn share(containers: u64) -> Share {
    Share {
        memory_bytes: EACH * containers,
        pids: 8 * containers,
    }
}

fn rule<T: std::fmt::Debug>(result: Result<T, ServiceError>) -> &'static str {
    match result {
        Err(ServiceError::Refused(refusal)) => refusal.rule(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_20_spawns_at_once_as_many_are_made_as_there_is_room_for() {
    let fixture = bounded(Fixture::new());
    let service = fixture.start().await;
    let spawns = (0..20).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), Spawn::default()).await })
    });
    let mut made = Vec::new();
    for spawn in spawns.collect::<Vec<_>>() {
        match spawn.await.unwrap() {
            Ok(view) => made.push(view),
            refused => assert_eq!(rule(refused), "memory_total"),
        }
    }
    assert_eq!(made.len() as u64, PLACES);
    assert_eq!(fixture.held().await.len() as u64, PLACES);
    assert_eq!(held(&service).await, share(PLACES));

    // The total is everybody's, and what one gives back another may have.
    let refused = service.spawn(&somebody_else(), Spawn::default()).await;
    assert_eq!(rule(refused), "memory_total");
    service.kill(&me(), &by_id(&made[0]), true).await.unwrap();
    assert_eq!(held(&service).await, share(PLACES - 1));
    let theirs = service.spawn(&somebody_else(), Spawn::default()).await;
    theirs.unwrap();
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
    assert_eq!(held(&service).await, Share::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_holds_nothing() {
    let mut failures = 0;
    for seed in 0..20 {
        let fixture = bounded(Fixture::with_faults(Faults::from_seed(seed)));
        let service = fixture.start().await;
        for _ in 0..5 {
            let Err(error) = service.spawn(&me(), of_size(EACH * PLACES)).await else {
                break;
            };
            assert!(!matches!(error, ServiceError::Refused(_)), "{error:?}");
            failures += 1;
            assert_eq!(held(&service).await, Share::default(), "seed {seed}");
        }
    }
    assert!(failures > 0, "the test proves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_later_holds_nothing() {
    let mut fixture = bounded(Fixture::new());
    fixture.settings.quotas.default.containers = 1;
    let service = fixture.start().await;
    service.spawn(&me(), Spawn::default()).await.unwrap();
    let too_many = service.spawn(&me(), Spawn::default()).await;
    assert!(matches!(too_many, Err(ServiceError::OverQuota(_))));
    assert_eq!(held(&service).await, share(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_counts_what_it_finds() {
    let fixture = bounded(Fixture::new());
    let service = fixture.start().await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    let big = service.spawn(&me(), of_size(EACH * 8)).await.unwrap();
    drop(service);

    let service = fixture.start().await;
    let expected = Share {
        memory_bytes: EACH * 9,
        pids: 16,
    };
    assert_eq!(held(&service).await, expected);
    let refused = service.spawn(&me(), of_size(EACH * 2)).await;
    assert_eq!(rule(refused), "memory_total");
    service.kill(&me(), &by_id(&big), true).await.unwrap();
    service.spawn(&me(), of_size(EACH * 2)).await.unwrap();
    service.kill(&me(), &by_id(&kept), true).await.unwrap();
    let expected = Share {
        memory_bytes: EACH * 2,
        pids: 8,
    };
    assert_eq!(held(&service).await, expected);
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_by_itself_holds_nothing_any_more() {
    let fixture = bounded(Fixture::new());
    let service = fixture.start().await;
    let view = service.spawn(&me(), of_size(EACH * PLACES)).await.unwrap();
    fixture.engine().crash(&view.id).await.unwrap();
    let is_free = async || held(&service).await == Share::default();
    until("what it held is free", is_free).await;
    service.spawn(&me(), of_size(EACH * PLACES)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_container_counts_and_counts_once_when_it_is_handed_out() {
    let mut fixture = bounded(warm_ground(2));
    fixture.settings.warm[0].wanted = 2;
    let service = fixture.start().await;
    until_ready(&service, 2).await;
    assert_eq!(held(&service).await, share(2));
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert!(view.is_warm);
    until_ready(&service, 2).await;
    assert_eq!(held(&service).await, share(3));
    service.kill(&me(), &by_id(&view), true).await.unwrap();
    assert_eq!(held(&service).await, share(2));
    service.stop(Duration::ZERO).await;
    assert_eq!(held(&service).await, Share::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_containers_give_way_to_whoever_needs_their_room() {
    let fixture = bounded(warm_ground(4));
    let service = fixture.start().await;
    until_ready(&service, 4).await;
    let big = service.spawn(&me(), of_size(EACH * 8)).await.unwrap();
    assert_eq!(big.limits.memory.get(), EACH * 8);
    assert!(held(&service).await.memory_bytes <= EACH * PLACES);
    // What is left is the pool's again, and no more of it.
    until_ready(&service, 2).await;
    assert_eq!(held(&service).await.memory_bytes, EACH * PLACES);
    let refused = service.spawn(&me(), of_size(EACH * 3)).await;
    assert_eq!(rule(refused), "memory_total");
    assert_eq!(
        service.status(&me()).await.unwrap().warm[0].ready,
        2,
        "what would not help is not given up"
    );
    // When there is room again, it is filled.
    service.kill(&me(), &by_id(&big), true).await.unwrap();
    until_ready(&service, 4).await;
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spawns_and_a_pool_that_want_the_same_room_never_hold_more_than_there_is() {
    let fixture = bounded(warm_ground(6));
    let service = fixture.start().await;
    let spawns = (0..40).map(|number| {
        let service = service.clone();
        tokio::spawn(async move {
            let size = EACH * (1 + number % 3);
            let spawned = service.spawn(&me(), of_size(size)).await;
            assert!(held(&service).await.memory_bytes <= EACH * PLACES);
            if let Ok(view) = spawned {
                service.kill(&me(), &by_id(&view), true).await.unwrap();
            }
        })
    });
    for spawn in spawns.collect::<Vec<_>>() {
        spawn.await.unwrap();
    }
    until_ready(&service, 6).await;
    assert_eq!(held(&service).await, share(6));
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_a_full_house_leaves_room_for_who_comes_next() {
    let fixture = bounded(warm_ground(10));
    let service = fixture.start().await;
    until_ready(&service, PLACES).await;
    drop(service);
    // The warm ones of the first server are being removed.
    let service = fixture.start().await;
    service.spawn(&me(), of_size(EACH * PLACES)).await.unwrap();
    assert_eq!(held(&service).await.memory_bytes, EACH * PLACES);
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_maximum_is_denied_and_holds_nothing() {
    let mut fixture = bounded(Fixture::new());
    let most = limits(EACH);
    fixture.settings.policy.maxima = Some(Maxima {
        memory: most.memory,
        cpus: most.cpus,
        pids: most.pids,
        disk: most.disk,
    });
    let service = fixture.start().await;
    let refused = service.spawn(&me(), of_size(EACH + 1)).await;
    assert_eq!(rule(refused), "memory_max");
    assert_eq!(held(&service).await, Share::default());
    service.spawn(&me(), of_size(EACH)).await.unwrap();
}
