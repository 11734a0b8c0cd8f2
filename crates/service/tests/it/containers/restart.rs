//! A server that dies, and the next one.

use std::time::Duration;

use hotcell_domain::Phase;
use hotcell_engine::Engine as _;
use hotcell_service::Spawn;

use crate::fixture::{Fixture, attach, by_alias, by_id, ids, keyed, me, named, persistent, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_finds_every_container_again() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let transient = service.spawn(&me(), named("box")).await.unwrap();
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    let with_key = service.spawn(&me(), keyed("k")).await.unwrap();
    let (attached, _) = attach(&service, &by_alias("box"), "s").await.unwrap();
    drop(service);

    let service = fixture.start().await;
    let found = service.containers(&me(), false).await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], attached);
    assert_eq!(
        ids(&found),
        [&transient, &kept, &with_key].map(|view| view.id.clone())
    );
    // Keys and aliases still lead to them.
    assert_eq!(
        service.spawn(&me(), keyed("k")).await.unwrap().id,
        with_key.id
    );
    assert_eq!(
        service.container(&me(), &by_alias("box")).await.unwrap().id,
        transient.id
    );
    let reconciled = service.status(&me()).await.unwrap().reconciled.unwrap().1;
    assert_eq!((reconciled.discovered, reconciled.errors), (3, 0));
    assert_eq!(
        (reconciled.adopted, reconciled.cleaned, reconciled.orphaned),
        (0, 0, 0)
    );
    for view in found {
        service.kill(&me(), &by_id(&view), true).await.unwrap();
    }
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_while_no_server_ran_is_noted_and_removed() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let vanished = service.spawn(&me(), named("vanished")).await.unwrap();
    let crashed = service.spawn(&me(), named("crashed")).await.unwrap();
    let fine = service.spawn(&me(), Spawn::default()).await.unwrap();
    drop(service);
    let store = fixture.store().await;
    fixture.engine().destroy(&vanished.id).await.unwrap();
    fixture.engine().crash(&crashed.id).await.unwrap();
    let engine = fixture.engine();
    engine.exited(&crashed.id).await.unwrap();
    drop(store);

    let service = fixture.start().await;
    let reconciled = service.status(&me()).await.unwrap().reconciled.unwrap().1;
    assert_eq!(
        (reconciled.cleaned, reconciled.orphaned, reconciled.errors),
        (1, 1, 0)
    );
    until("both are noted as failed", async || {
        let all = service.containers(&me(), true).await.unwrap();
        let failed = all.iter().filter(|view| view.phase == Phase::Failed);
        failed.count() == 2 && all.len() == 3
    })
    .await;
    fixture.until_held(1).await;
    assert_eq!(fixture.held().await, [fine.id]);
    until("its alias is free", async || {
        service.spawn(&me(), named("crashed")).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_begun_is_carried_out_by_the_next_server() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    drop(service);
    let store = fixture.store().await;
    store
        .set_container_phase(view.id, Phase::Stopping, None)
        .await
        .unwrap();
    drop(store);

    let service = fixture.start().await;
    fixture.until_held(0).await;
    until("its row is ended", async || {
        let all = service.containers(&me(), true).await.unwrap();
        all.len() == 1 && all[0].phase == Phase::Stopped
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_at_any_moment_of_a_spawn_loses_and_leaks_nothing() {
    for after_us in (0..24).map(|step| step * 700) {
        let fixture = Fixture::new();
        let service = fixture.start().await;
        let caller = me();
        let spawning = service.spawn(&caller, keyed("k"));
        let _ = tokio::time::timeout(Duration::from_micros(after_us), spawning).await;
        drop(service);

        let service = fixture.start().await;
        // The key leads to the one container, whether or not it was created before.
        let view = service.spawn(&me(), keyed("k")).await.unwrap();
        assert_eq!(view.phase, Phase::Running, "after {after_us} us");
        fixture.until_held(1).await;
        assert_eq!(fixture.held().await, [view.id], "after {after_us} us");
        service.stop(Duration::ZERO).await;
        fixture.assert_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uses_are_noted_when_the_server_stops() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), persistent()).await.unwrap();
    fixture.advance(Duration::from_secs(100));
    attach(&service, &by_id(&view), "s").await.unwrap();
    service.stop(Duration::ZERO).await;
    drop(service);
    let living = fixture.store().await.active_containers().await.unwrap();
    assert_eq!(living[0].last_used_unix_ms, view.created_unix_ms + 100_000);
}
