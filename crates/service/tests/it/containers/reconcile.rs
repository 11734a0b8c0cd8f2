//! Differences between store and engine that a running server finds.

use std::fs;

use hotcell_domain::{Bytes, ContainerId, ContainerSpec, ImageRef, Policy};
use hotcell_engine::Engine as _;
use hotcell_service::{Reconciled, Spawn};

use crate::fixture::{Fixture, by_id, ids, me};

fn stranger(number: u64) -> ContainerId {
    ContainerId::from_parts(number, [9; 10])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_row_is_adopted() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let ours = service.spawn(&me(), Spawn::default()).await.unwrap();
    let mut theirs = ContainerSpec::new(ImageRef::parse("python:3.12").unwrap());
    theirs.limits.memory = Bytes::parse("96m").unwrap();
    let spec = Policy::default().admit(theirs.clone()).unwrap();
    hotcell_engine::fetch_and_create(&fixture.engine(), &stranger(1), &spec)
        .await
        .unwrap();

    let expected = Reconciled {
        discovered: 2,
        adopted: 1,
        ..Reconciled::default()
    };
    assert_eq!(service.reconcile(&me()).await.unwrap(), expected);
    let nothing_new = Reconciled {
        discovered: 2,
        ..Reconciled::default()
    };
    assert_eq!(service.reconcile(&me()).await.unwrap(), nothing_new);

    let listed = service.containers(&me(), false).await.unwrap();
    assert_eq!(ids(&listed), [stranger(1), ours.id]);
    assert_eq!(
        listed[0].labels.iter().collect::<Vec<_>>(),
        [("hotcell.adopted", "true")]
    );
    assert!(listed[0].is_persistent, "it may hold somebody's work");
    // It keeps its own settings, not those that this server would use.
    assert_eq!(listed[0].image, theirs.image);
    assert_eq!(listed[0].limits, theirs.limits);
    let held = service.status(&me()).await.unwrap().held;
    assert_eq!(held, theirs.limits.share().plus(listed[1].limits.share()));
    for view in listed {
        service.kill(&me(), &by_id(&view), false).await.unwrap();
    }
    fixture.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_half_made_or_stopped_without_a_row_is_removed() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let spec = Policy::default()
        .admit(ContainerSpec::new(ImageRef::Host))
        .unwrap();
    let engine = fixture.engine();
    hotcell_engine::fetch_and_create(&engine, &stranger(1), &spec)
        .await
        .unwrap();
    fixture.engine().crash(&stranger(1)).await.unwrap();
    engine.exited(&stranger(1)).await.unwrap();
    fs::create_dir_all(fixture.directory(&stranger(2))).unwrap();

    let expected = Reconciled {
        discovered: 2,
        orphaned: 2,
        ..Reconciled::default()
    };
    assert_eq!(service.reconcile(&me()).await.unwrap(), expected);
    fixture.assert_empty().await;
}
