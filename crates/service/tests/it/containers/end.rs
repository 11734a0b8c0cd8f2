//! Ends of containers: killed, expired, crashed, stopped, and several of these at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotcell_domain::{ContainerRef, Phase};
use hotcell_service::{Service, ServiceError, Settings, Spawn, SystemClock, SystemRandom};

use crate::fixture::{
    DEADLINE, Fixture, attach, begin_and_drop, by_id, ids, me, named, persistent, until,
};

fn with_ttl(ttl_s: u64) -> Spawn {
    Spawn {
        ttl_s: Some(ttl_s),
        ..Spawn::default()
    }
}

/// A service on the real clock, for containers that end by themselves.
async fn start_by_the_real_clock(fixture: &Fixture) -> Service {
    let store = fixture.store().await;
    let engine = Arc::new(fixture.engine());
    let settings = Settings {
        kill_grace: Duration::from_millis(200),
        ..Settings::default()
    };
    let service = Service::start(
        engine,
        store,
        settings,
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    );
    service.await.expect("the service starts")
}

fn is_gone(result: &Result<(), ServiceError>) -> bool {
    matches!(
        result,
        Err(ServiceError::NotFound {
            what: "container",
            ..
        })
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_killed_twice_is_not_found() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    for force in [false, true] {
        let view = service.spawn(&me(), Spawn::default()).await.unwrap();
        service.kill(&me(), &by_id(&view), force).await.unwrap();
        fixture.assert_empty().await;
        assert!(is_gone(&service.kill(&me(), &by_id(&view), force).await));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_kills_at_once_finds_it_gone_afterwards() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    let kills = (0..16).map(|number| {
        let (service, target) = (service.clone(), by_id(&view));
        tokio::spawn(async move { service.kill(&me(), &target, number % 2 == 0).await })
    });
    let mut killed = 0;
    for kill in kills.collect::<Vec<_>>() {
        let result = kill.await.unwrap();
        assert!(result.is_ok() || is_gone(&result), "{result:?}");
        killed += usize::from(result.is_ok());
        assert_eq!(fixture.held().await, []);
    }
    assert!(killed >= 1);
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_ends_when_its_time_is_up() {
    let fixture = Fixture::new();
    let service = start_by_the_real_clock(&fixture).await;
    let began = Instant::now();
    service.spawn(&me(), with_ttl(1)).await.unwrap();
    let lasting = service.spawn(&me(), with_ttl(3600)).await.unwrap();
    fixture.until_held(1).await;
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "it ended early"
    );
    until("its row is ended", async || {
        ids(&service.containers(&me(), false).await.unwrap()) == [lasting.id.clone()]
    })
    .await;
    assert_eq!(fixture.held().await, [lasting.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_the_moment_of_expiry_leaves_one_end() {
    let fixture = Fixture::new();
    let service = start_by_the_real_clock(&fixture).await;
    let mut kills = Vec::new();
    for number in 0..24_u32 {
        let view = service.spawn(&me(), with_ttl(1)).await.unwrap();
        let due = Instant::now() + Duration::from_millis(950) + Duration::from_millis(4) * number;
        let (service, target) = (service.clone(), by_id(&view));
        kills.push(tokio::spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            service.kill(&me(), &target, false).await
        }));
    }
    for kill in kills {
        let result = kill.await.unwrap();
        assert!(result.is_ok() || is_gone(&result), "{result:?}");
    }
    fixture.until_held(0).await;
    until("all rows are ended", async || {
        service.containers(&me(), false).await.unwrap().is_empty()
    })
    .await;
    let ended = service.containers(&me(), true).await.unwrap();
    assert_eq!(ended.len(), 24);
    assert!(ended.iter().all(|view| view.phase == Phase::Stopped));
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_agent_dies_has_failed_and_is_removed() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    fixture.engine().crash(&view.id).await.unwrap();
    until("it is noted as failed", async || {
        let all = service.containers(&me(), true).await.unwrap();
        all.len() == 1 && all[0].phase == Phase::Failed
    })
    .await;
    fixture.until_held(0).await;
    assert!(is_gone(&service.kill(&me(), &by_id(&view), true).await));
    // Its alias is free.
    until("its alias is free", async || {
        service.spawn(&me(), named("box")).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_the_engine_loses_is_noted_by_reconcile() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    // Its agent is still running, so only the engine can tell.
    let (home, elsewhere) = (
        fixture.directory(&view.id),
        fixture.directory(&view.id).with_extension("lost"),
    );
    std::fs::rename(&home, &elsewhere).unwrap();
    until("it is noted as failed", async || {
        let reconciled = service.reconcile(&me()).await.unwrap();
        assert_eq!((reconciled.discovered, reconciled.errors), (0, 0));
        let all = service.containers(&me(), true).await.unwrap();
        all.len() == 1 && all[0].phase == Phase::Failed
    })
    .await;
    std::fs::rename(&elsewhere, &home).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_removes_transient_containers_and_keeps_persistent_ones() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    for _ in 0..3 {
        service.spawn(&me(), Spawn::default()).await.unwrap();
    }
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    service.stop(Duration::ZERO).await;
    assert!(!service.is_ready());
    let refused = service.spawn(&me(), Spawn::default()).await;
    assert!(
        matches!(refused, Err(ServiceError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(fixture.held().await, std::slice::from_ref(&kept.id));
    drop(service);

    let living = fixture.store().await.active_containers().await.unwrap();
    assert_eq!(living.len(), 1);
    assert_eq!((&living[0].id, living[0].phase), (&kept.id, Phase::Running));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_attaches_is_noted_once() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    let target = by_id(&view);
    let (_, first) = attach(&service, &target, "s").await.unwrap();
    fixture.advance(Duration::from_secs(5));
    let (shown, again) = attach(&service, &target, "s").await.unwrap();
    assert_eq!(first, again);
    assert_eq!(shown.attachments, [first]);
    assert_eq!(shown.last_used_unix_ms, view.last_used_unix_ms + 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn attachments_are_bounded() {
    let mut fixture = Fixture::new();
    fixture.settings.attachments_max = 2;
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    let target: ContainerRef = by_id(&view);
    for session in ["a", "b"] {
        attach(&service, &target, session).await.unwrap();
    }
    let third = attach(&service, &target, "c").await;
    assert!(
        matches!(third, Err(ServiceError::Exhausted { .. })),
        "{third:?}"
    );
    attach(&service, &target, "a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_that_nobody_waits_for_is_carried_out() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    let target = by_id(&view);
    begin_and_drop(service.kill(&me(), &target, false)).await;
    fixture.until_held(0).await;
    let began = Instant::now();
    while !service.containers(&me(), false).await.unwrap().is_empty() {
        assert!(began.elapsed() < DEADLINE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_fails_is_listed_at_every_moment() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    for count in 1..=8 {
        let view = service.spawn(&me(), Spawn::default()).await.unwrap();
        fixture.engine().crash(&view.id).await.unwrap();
        until("it has failed, and nothing is left of it", async || {
            let all = service.containers(&me(), true).await.unwrap();
            assert_eq!(all.len(), count, "one is not listed");
            all[count - 1].phase == Phase::Failed && fixture.held().await.is_empty()
        })
        .await;
    }
}
