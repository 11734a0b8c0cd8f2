//! The clock of the host is set while containers live.

use std::time::Duration;

use hotcell_service::{Collected, Spawn};

use crate::fixture::{Fixture, by_id, ids, keyed, me, persistent};

const HOUR: Duration = Duration::from_hours(1);

/// A wrong year, as a host has it whose battery is empty.
const YEARS: Duration = Duration::from_hours(24 * 1000);

fn with_ttl(ttl: Duration) -> Spawn {
    Spawn {
        ttl_s: Some(ttl.as_secs()),
        ..Spawn::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_and_forth_ends_nothing_before_its_time() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let mine = service.spawn(&me(), keyed("k")).await.unwrap();
    let short = service.spawn(&me(), with_ttl(HOUR)).await.unwrap();
    fixture.set_back(YEARS);
    let nothing = Collected::default();
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        nothing
    );
    let again = service.spawn(&me(), keyed("k")).await.unwrap();
    assert_eq!(again.id, mine.id, "the key leads to another container");
    let late = service.spawn(&me(), with_ttl(HOUR)).await.unwrap();

    // The next server finds all of them, younger than they can be.
    drop(service);
    let service = fixture.start().await;
    let found = service.containers(&me(), false).await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        nothing
    );
    fixture.advance(HOUR * 2);
    let one = Collected {
        expired_containers: 1,
        ..nothing
    };
    assert_eq!(service.collect_garbage(&me(), false).await.unwrap(), one);
    let found = ids(&service.containers(&me(), false).await.unwrap());
    assert!(!found.contains(&late.id) && found.contains(&short.id));

    // It is right again: what was made before has lived for two hours, and the record of what ended
    // is years old.
    fixture.advance(YEARS);
    let and_its_record = Collected {
        container_records: 1,
        ..one
    };
    assert_eq!(
        service.collect_garbage(&me(), false).await.unwrap(),
        and_its_record
    );
    let found = ids(&service.containers(&me(), false).await.unwrap());
    assert_eq!(found, [mine.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_keeps_what_is_persistent() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let kept = service.spawn(&me(), persistent()).await.unwrap();
    service.spawn(&me(), with_ttl(HOUR)).await.unwrap();
    fixture.advance(YEARS);
    let one = Collected {
        expired_containers: 1,
        ..Collected::default()
    };
    assert_eq!(service.collect_garbage(&me(), false).await.unwrap(), one);
    fixture.set_back(YEARS);
    let more = service.spawn(&me(), Spawn::default()).await.unwrap();
    let found = ids(&service.containers(&me(), false).await.unwrap());
    assert!(found.contains(&kept.id) && found.contains(&more.id));
    for view in [&kept, &more] {
        service.kill(&me(), &by_id(view), true).await.unwrap();
    }
    fixture.assert_empty().await;
}
