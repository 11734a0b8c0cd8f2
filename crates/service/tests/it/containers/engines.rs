//! A server that is started on another engine than before.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{ExecStatus, Phase};
use hotcell_engine::Engine as _;
use hotcell_service::{ContainerView, Reconciled, Service, ServiceError, Spawn};

use super::faulty_engine::FaultyEngine;
use super::pool::{until_ready, warm_ground};
use super::revive::{finish, start};
use crate::fixture::{Fixture, by_id, ids, me, named, persistent, until};

/// Callers do not learn the address of an engine.
const ELSEWHERE: &str = "is held by fake at another address than this server's";

/// Works on the first engine, then serves on the second, which has none of that, then on the first
/// again.
async fn expect_left_alone(
    on_first: impl Fn(&Fixture) -> Arc<FaultyEngine>,
    on_second: impl Fn(&Fixture) -> Arc<FaultyEngine>,
) {
    let fixture = warm_ground(2);
    let service = fixture.start_on(on_first(&fixture)).await;
    until_ready(&service, 2).await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    let transient = service.spawn(&me(), named("box")).await.unwrap();
    let exec = start(
        &service,
        &kept,
        "until [ -e go ]; do sleep 0.01; done; echo done",
    )
    .await;
    until_ready(&service, 2).await;
    drop(service);
    let (held, warm) = {
        let store = fixture.store().await;
        (fixture.held().await, store.warm().await.unwrap())
    };

    let elsewhere = Fixture::new();
    let second = on_second(&elsewhere);
    let (first, here) = (on_first(&fixture).identity().name, second.identity().name);
    let words = if first == here {
        ELSEWHERE.to_owned()
    } else {
        format!("is held by {first}, and this server runs on {here}")
    };
    let service = fixture.start_on(second).await;
    expect_halted(&service, &[&kept, &transient], &words).await;
    fixture.advance(Duration::from_hours(24 * 30));
    service.collect_garbage(&me(), false).await.unwrap();
    let taken = service.spawn(&me(), named("box")).await;
    assert!(
        matches!(taken, Err(ServiceError::AlreadyExists { .. })),
        "{taken:?}"
    );
    service.spawn(&me(), Spawn::default()).await.unwrap();
    service.stop(Duration::ZERO).await;
    drop(service);
    elsewhere.assert_empty().await;
    assert_eq!(fixture.held().await, held);
    assert_eq!(fixture.store().await.warm().await.unwrap(), warm);

    let service = fixture.start_on(on_first(&fixture)).await;
    let listed = service.containers(&me(), false).await.unwrap();
    assert_eq!(ids(&listed), [kept.id.clone(), transient.id]);
    assert!(listed.iter().all(|view| view.phase == Phase::Running));
    fs::write(fixture.directory(&kept.id).join("root/go"), "").unwrap();
    let (status, said) = finish(&service, &exec).await;
    assert_eq!((status, said.as_str()), (ExecStatus::Succeeded, "done\n"));
}

/// These are all containers, and none can be used; the reason contains these words.
async fn expect_halted(service: &Service, theirs: &[&ContainerView], words: &str) {
    for _ in 0..2 {
        assert_eq!(
            service.reconcile(&me()).await.unwrap(),
            Reconciled::default()
        );
        let listed = service.containers(&me(), false).await.unwrap();
        let wanted: Vec<_> = theirs.iter().map(|view| view.id.clone()).collect();
        assert_eq!(ids(&listed), wanted);
        for view in listed {
            assert_eq!((view.phase, view.engine.as_str()), (Phase::Halted, "fake"));
            let refused = service.kill(&me(), &by_id(&view), true).await;
            let Err(ServiceError::Halted { reason, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(reason, format!("container {} {words}", view.id));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_engine_holds_is_left_alone_and_there_when_that_is_back() {
    expect_left_alone(FaultyEngine::new, |fixture| {
        FaultyEngine::named("other", fixture)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_of_another_host_holds_is_left_alone_and_there_when_that_is_back() {
    let at = |host| move |fixture: &Fixture| FaultyEngine::at(host, fixture);
    expect_left_alone(at("tcp://a:1"), at("tcp://b:1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_at_another_address_is_the_same_if_it_shows_what_it_holds() {
    let fixture = warm_ground(2);
    // The first server did not record its address.
    let service = fixture.start().await;
    until_ready(&service, 2).await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    until_ready(&service, 2).await;
    drop(service);
    for host in ["tcp://a:1", "tcp://b:1"] {
        let left = fixture.store().await.warm().await.unwrap();
        assert_eq!(left.len(), 2);
        let service = fixture.start_on(FaultyEngine::at(host, &fixture)).await;
        let listed = service.containers(&me(), false).await.unwrap();
        assert_eq!(ids(&listed), std::slice::from_ref(&kept.id));
        assert_eq!(listed[0].phase, Phase::Running);
        until("the pool of the other server is gone", async || {
            let held = fixture.held().await;
            held.len() == 3 && !left.iter().any(|row| held.contains(&row.id))
        })
        .await;
        until_ready(&service, 2).await;
        drop(service);
    }
    let elsewhere = Fixture::new();
    let service = fixture
        .start_on(FaultyEngine::at("tcp://c:1", &elsewhere))
        .await;
    expect_halted(&service, &[&kept], ELSEWHERE).await;
    service.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_thought_to_have_ended_is_its_owners_again() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    let home = fixture.directory(&view.id);
    let elsewhere = home.with_extension("lost");
    fs::rename(&home, &elsewhere).unwrap();
    until("it is noted as failed", async || {
        service.reconcile(&me()).await.unwrap();
        let all = service.containers(&me(), true).await.unwrap();
        all.len() == 1 && all[0].phase == Phase::Failed
    })
    .await;
    fs::rename(&elsewhere, &home).unwrap();
    assert_eq!(fixture.engine().list().await.unwrap().len(), 1);
    let found = service.reconcile(&me()).await.unwrap();
    assert_eq!((found.adopted, found.errors), (1, 0));
    assert_eq!(service.reconcile(&me()).await.unwrap().errors, 0);
    let again = service
        .container(&me(), &crate::fixture::by_alias("box"))
        .await;
    let again = again.unwrap();
    assert_eq!((again.id, again.phase), (view.id, Phase::Running));
    assert_eq!(again.labels, view.labels);
}
