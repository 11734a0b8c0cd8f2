//! Making containers: keys, aliases, bounds, policy.

use std::time::Duration;

use hotcell_domain::{ImageRef, Network, Phase};
use hotcell_service::{ServiceError, Spawn};
use hotcell_testkit::fake::Faults;

use crate::fixture::{
    Fixture, begin_and_drop, by_alias, by_id, ids, keyed, me, named, persistent, somebody_else,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_made_listed_and_removed() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    assert_eq!(view.phase, Phase::Running);
    assert_eq!(fixture.held().await, std::slice::from_ref(&view.id));
    let listed = service.containers(&me(), false).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&view));
    assert_eq!(
        service.container(&me(), &by_alias("box")).await.unwrap(),
        view
    );

    service.kill(&me(), &by_alias("box"), false).await.unwrap();
    fixture.assert_empty().await;
    assert_eq!(service.containers(&me(), false).await.unwrap(), []);
    let ended = service.containers(&me(), true).await.unwrap();
    assert_eq!(ids(&ended), [view.id]);
    assert_eq!(ended[0].phase, Phase::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_32_spawns_under_one_key_one_makes_a_container() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let spawns = (0..32).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), keyed("same")).await })
    });
    let mut made = Vec::new();
    for spawn in spawns.collect::<Vec<_>>() {
        made.push(spawn.await.unwrap().unwrap().id);
    }
    made.dedup();
    assert_eq!(made.len(), 1);
    assert_eq!(fixture.held().await, made);
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_belongs_to_its_principal_and_to_its_day() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let first = service.spawn(&me(), keyed("k")).await.unwrap();
    assert_eq!(service.spawn(&me(), keyed("k")).await.unwrap().id, first.id);
    let theirs = service.spawn(&somebody_else(), keyed("k")).await.unwrap();
    assert_ne!(theirs.id, first.id);
    fixture.advance(Duration::from_secs(24 * 60 * 60 + 1));
    let next_day = service.spawn(&me(), keyed("k")).await.unwrap();
    assert_ne!(next_day.id, first.id);
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_killed_container_answers_that_container() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let first = service.spawn(&me(), keyed("k")).await.unwrap();
    service.kill(&me(), &by_id(&first), true).await.unwrap();
    let again = service.spawn(&me(), keyed("k")).await.unwrap();
    assert_eq!((again.id, again.phase), (first.id, Phase::Stopped));
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_16_spawns_with_one_alias_one_gets_it() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let spawns = (0..16).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.spawn(&me(), named("box")).await })
    });
    let (mut made, mut refused) = (0, 0);
    for spawn in spawns.collect::<Vec<_>>() {
        match spawn.await.unwrap() {
            Ok(_) => made += 1,
            Err(ServiceError::AlreadyExists {
                what: "alias",
                name,
            }) if name == "box" => {
                refused += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!((made, refused), (1, 15));
    assert_eq!(fixture.held().await.len(), 1);
    // Free again at once when the container is gone, and free for others all the time.
    service.spawn(&somebody_else(), named("box")).await.unwrap();
    service.kill(&me(), &by_alias("box"), false).await.unwrap();
    service.spawn(&me(), named("box")).await.unwrap();
    service.stop(Duration::ZERO).await;
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_container_is_as_a_missing_one() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), named("box")).await.unwrap();
    let missing = |result: Result<(), ServiceError>| {
        assert!(
            matches!(
                result,
                Err(ServiceError::NotFound {
                    what: "container",
                    ..
                })
            ),
            "{result:?}"
        );
    };
    for target in [by_id(&view), by_alias("box")] {
        let caller = somebody_else();
        missing(service.kill(&caller, &target, true).await);
        missing(service.container(&caller, &target).await.map(drop));
        let client = crate::fixture::name("client");
        let attached = service
            .attach(&caller, &target, client.clone(), client)
            .await;
        missing(attached.map(drop));
    }
    assert_eq!(
        service.containers(&somebody_else(), true).await.unwrap(),
        []
    );
    assert_eq!(fixture.held().await, [view.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_has_no_more_containers_than_it_may() {
    let mut fixture = Fixture::new();
    fixture.settings.quotas.default.containers = 2;
    let service = fixture.start().await;
    let first = service.spawn(&me(), keyed("k")).await.unwrap();
    service.spawn(&me(), Spawn::default()).await.unwrap();
    let third = service.spawn(&me(), Spawn::default()).await;
    assert!(
        matches!(third, Err(ServiceError::OverQuota(_))),
        "{third:?}"
    );
    // A repeated request is none more, and another's are their own.
    assert_eq!(service.spawn(&me(), keyed("k")).await.unwrap().id, first.id);
    service
        .spawn(&somebody_else(), Spawn::default())
        .await
        .unwrap();
    service.kill(&me(), &by_id(&first), true).await.unwrap();
    service.spawn(&me(), Spawn::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policy_refuses_is_denied_and_leaves_nothing() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let online = Spawn {
        network: Some(Network::Full),
        ..Spawn::default()
    };
    let rootfs = Spawn {
        image: Some(ImageRef::Rootfs("/srv".into())),
        ..Spawn::default()
    };
    for request in [online, rootfs] {
        let refused = service.spawn(&me(), request).await;
        assert!(
            matches!(refused, Err(ServiceError::Refused(_))),
            "{refused:?}"
        );
    }
    assert_eq!(service.containers(&me(), true).await.unwrap(), []);
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_that_makes_no_sense_is_invalid() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let with_ttl = |ttl_s, request: Spawn| Spawn {
        ttl_s: Some(ttl_s),
        ..request
    };
    let requests = [
        with_ttl(0, Spawn::default()),
        with_ttl(u64::MAX, Spawn::default()),
        with_ttl(60, persistent()),
    ];
    for request in requests {
        let refused = service.spawn(&me(), request).await;
        assert!(
            matches!(refused, Err(ServiceError::Invalid { .. })),
            "{refused:?}"
        );
    }
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_spawn_leaves_nothing_and_gives_alias_and_key_back() {
    let request = || Spawn {
        key: Some(crate::fixture::name("k")),
        ..named("box")
    };
    let mut failures = 0;
    for seed in 0..40 {
        let fixture = Fixture::with_faults(Faults::from_seed(seed));
        let service = fixture.start().await;
        let mut made = service.spawn(&me(), request()).await;
        for _ in 0..20 {
            if made.is_ok() {
                break;
            }
            failures += 1;
            fixture.assert_empty().await;
            assert_eq!(
                service.containers(&me(), false).await.unwrap(),
                [],
                "seed {seed}"
            );
            made = service.spawn(&me(), request()).await;
        }
        made.unwrap();
    }
    assert!(failures > 0, "the test proves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spawn_that_nobody_waits_for_is_made_and_listed() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    begin_and_drop(service.spawn(&me(), named("box"))).await;
    let is_running = async || {
        let listed = service.containers(&me(), false).await.unwrap();
        listed.len() == 1 && listed[0].phase == Phase::Running
    };
    crate::fixture::until("it is made", is_running).await;
    service.kill(&me(), &by_alias("box"), false).await.unwrap();
    fixture.assert_empty().await;
}
