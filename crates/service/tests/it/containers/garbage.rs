//! What garbage collection removes and keeps.

use std::time::Duration;

use hotcell_service::{Collected, Spawn};

use super::faulty_engine::FaultyEngine;
use crate::fixture::{Fixture, attach, by_id, ids, me, persistent};

const HOUR: Duration = Duration::from_hours(1);

fn with_ttl(ttl: Duration) -> Spawn {
    Spawn {
        ttl_s: Some(ttl.as_secs()),
        ..Spawn::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_go_when_their_time_is_up_or_nobody_uses_them() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    service.spawn(&me(), with_ttl(HOUR)).await.unwrap();
    service.spawn(&me(), Spawn::default()).await.unwrap();
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    let used = service.spawn(&me(), Spawn::default()).await.unwrap();
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        Collected::default()
    );

    fixture.advance(HOUR * 24 * 7);
    attach(&service, &by_id(&used), "s").await.unwrap();
    let expected = Collected {
        expired_containers: 1,
        idle_containers: 1,
        ..Collected::default()
    };
    assert_eq!(
        service.collect_garbage(&me(), true).await.unwrap(),
        expected
    );
    assert_eq!(fixture.held().await.len(), 4, "a dry run changes nothing");
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        expected
    );
    let left = service.containers(&me(), false).await.unwrap();
    assert_eq!(ids(&left), [kept.id.clone(), used.id.clone()]);
    assert_eq!(fixture.held().await, [kept.id, used.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_ended_containers_go_after_their_time() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    service.kill(&me(), &by_id(&view), true).await.unwrap();
    fixture.advance(HOUR * 23);
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        Collected::default()
    );
    fixture.advance(HOUR * 2);
    let expected = Collected {
        container_records: 1,
        ..Collected::default()
    };
    assert_eq!(
        service.collect_garbage(&me(), true).await.unwrap(),
        expected
    );
    assert_eq!(service.containers(&me(), true).await.unwrap().len(), 1);
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        expected
    );
    assert_eq!(service.containers(&me(), true).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_nobody_uses_and_what_dead_processes_left_go_and_a_dry_run_counts_them() {
    let mut fixture = Fixture::new();
    for (days, images) in [(None, 0), (Some(2), 0), (Some(1), 1)] {
        fixture.settings.image_idle_max = days.map(|days| HOUR * 24 * days);
        let service = fixture.start_on(FaultyEngine::new(&fixture)).await;
        let expected = Collected {
            images,
            leftovers: 3 + 2,
            ..Collected::default()
        };
        assert_eq!(
            service.collect_garbage(&me(), true).await.unwrap(),
            expected
        );
        assert_eq!(
            service.collect_garbage(&me(), true).await.unwrap(),
            expected
        );
        assert_eq!(
            service.collect_garbage(&me(), false).await.unwrap(),
            expected
        );
        assert_eq!(
            service.collect_garbage(&me(), false).await.unwrap().images,
            0
        );
    }
}
