use hotcell_domain::{ExecStatus, Name, Phase, Principal, Stream};

use super::*;
use crate::AttachmentRow;
use crate::samples::{container, end, exec, store};

async fn ended_exec(store: &Store, number: u64, ended_unix_ms: u64) {
    store.insert_exec(exec(number), 0).await.unwrap();
    let mut log = store.log_file(&exec(number).id, 1000).unwrap();
    log.append(1, Stream::Stdout, 1, b"hello").unwrap();
    drop(log);
    let end = end(ExecStatus::Succeeded);
    store
        .end_exec(exec(number).id, end, ended_unix_ms)
        .await
        .unwrap();
}

fn log_files(directory: &std::path::Path) -> usize {
    std::fs::read_dir(directory.join("logs")).unwrap().count()
}

#[tokio::test]
async fn old_execs_go_with_their_logs_and_others_stay() {
    let (directory, store) = store();
    ended_exec(&store, 1, 10).await;
    ended_exec(&store, 2, 20).await;
    store.insert_exec(exec(3), 0).await.unwrap();
    assert_eq!(store.prune_execs(20).await.unwrap(), 1);
    assert_eq!(
        store.exec(Principal::local(), exec(1).id).await.unwrap(),
        None
    );
    assert!(
        store
            .exec(Principal::local(), exec(2).id)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        store
            .exec(Principal::local(), exec(3).id)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(log_files(directory.path()), 1);
    assert_eq!(
        store.read_log_file(&exec(1).id, 0, 100).unwrap().messages,
        []
    );
    assert_eq!(store.prune_execs(20).await.unwrap(), 0);
}

#[tokio::test]
async fn more_than_a_portion_is_forgotten_in_one_call() {
    let (_directory, store) = store();
    let count = PORTION as u64 * 2 + 1;
    for number in 0..count {
        let row = crate::ExecRow {
            ended_unix_ms: Some(1),
            end: Some(end(ExecStatus::Lost)),
            ..exec(number)
        };
        store.insert_exec(row, 0).await.unwrap();
    }
    assert_eq!(store.prune_execs(2).await.unwrap(), count);
}

#[tokio::test]
async fn logs_without_an_exec_go_but_not_while_they_are_written_nor_what_is_not_a_log() {
    let (directory, store) = store();
    drop(store.log_file(&exec(1).id, 1000).unwrap());
    assert_eq!(log_files(directory.path()), 0);
    let mut orphan = store.log_file(&exec(2).id, 100).unwrap();
    let mut written = store.log_file(&exec(3).id, 100).unwrap();
    for number in 1..100 {
        orphan
            .append(number, Stream::Stdout, 1, b"0123456789")
            .unwrap();
        written
            .append(number, Stream::Stdout, 1, b"0123456789")
            .unwrap();
    }
    drop(orphan);
    let stranger = directory.path().join("logs/README");
    std::fs::write(&stranger, "mine").unwrap();
    assert_eq!(store.prune_execs(0).await.unwrap(), 0);
    assert!(stranger.exists());
    let listed = store.logs.list().unwrap();
    assert_eq!(listed.into_iter().collect::<Vec<_>>(), [exec(3).id]);
    assert_eq!(
        store.read_log_file(&exec(2).id, 0, 100).unwrap().messages,
        []
    );
    let page = store.read_log_file(&exec(3).id, 0, 100).unwrap();
    assert!(!page.messages.is_empty());
}

#[tokio::test]
async fn old_containers_go_with_their_attachments_and_others_stay() {
    let (_directory, store) = store();
    for number in 1..=3 {
        store.insert_container(container(number), 0).await.unwrap();
        let attachment = AttachmentRow {
            container: container(number).id,
            client_name: Name::parse("client").unwrap(),
            session_id: Name::parse("session").unwrap(),
            attached_unix_ms: 1,
        };
        store.attach(attachment, 9).await.unwrap();
    }
    for (number, ended) in [(1, 10), (2, 20)] {
        let id = container(number).id;
        store
            .set_container_phase(id, Phase::Stopped, Some(ended))
            .await
            .unwrap();
    }
    assert_eq!(store.prune_containers(20).await.unwrap(), 1);
    assert_eq!(store.attachments(container(1).id).await.unwrap(), []);
    assert_eq!(store.attachments(container(2).id).await.unwrap().len(), 1);
    let left = store
        .ended_containers_page(Principal::local(), None, 9)
        .await
        .unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(store.active_containers().await.unwrap().len(), 1);
}

const PLENTY: Retention = Retention {
    execs_max: 1000,
    log_bytes_max: 1 << 30,
    containers_max: 1000,
};

async fn left(store: &Store) -> Vec<u64> {
    let rows = store.ended_execs_page(Principal::local(), None, None, 9000);
    let rows = rows.await.unwrap();
    rows.iter().rev().map(|row| row.created_unix_ms).collect()
}

#[tokio::test]
async fn of_too_many_ended_execs_those_that_ended_first_go_with_their_logs() {
    let (directory, store) = store();
    // The first one requested is the last to end.
    for number in 1..=6 {
        ended_exec(&store, number, 100 - number).await;
    }
    store.insert_exec(exec(7), 0).await.unwrap();
    let keep = Retention {
        execs_max: 4,
        ..PLENTY
    };
    let principal = Principal::local;
    let excess = async |keep| store.principals_with_excess(keep).await.unwrap();
    assert_eq!(excess(PLENTY).await, []);
    assert_eq!(
        store.prune_excess(principal(), PLENTY).await.unwrap(),
        (0, 0)
    );
    assert_eq!(excess(keep).await, [principal()]);
    let other = Principal::new(Name::parse("somebody").unwrap());
    assert_eq!(store.prune_excess(other, keep).await.unwrap(), (0, 0));
    assert_eq!(store.prune_excess(principal(), keep).await.unwrap(), (2, 0));
    assert_eq!(left(&store).await, [1, 2, 3, 4]);
    assert_eq!(log_files(directory.path()), 4);
    assert_eq!(excess(keep).await, []);
    assert_eq!(store.active_execs().await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_too_much_output_the_oldest_goes_and_the_newest_stays_whatever_its_size() {
    let (_directory, store) = store();
    for number in 1..=5 {
        ended_exec(&store, number, number).await;
    }
    let one = store.logs.bytes(&exec(1).id);
    assert!(one > 0);
    let keep = |logs: u64| Retention {
        log_bytes_max: logs,
        ..PLENTY
    };
    let forget = async |keep| store.prune_excess(Principal::local(), keep).await.unwrap();
    assert_eq!(forget(keep(5 * one)).await, (0, 0));
    assert_eq!(forget(keep(4 * one - 1)).await, (2, 0));
    assert_eq!(left(&store).await, [3, 4, 5]);
    assert_eq!(forget(keep(0)).await, (2, 0));
    assert_eq!(left(&store).await, [5]);
    // Rows that GC deletes are counted as well.
    assert_eq!(store.prune_execs(100).await.unwrap(), 1);
    ended_exec(&store, 6, 6).await;
    ended_exec(&store, 7, 7).await;
    assert_eq!(forget(keep(2 * one)).await, (0, 0));
}

#[tokio::test]
async fn more_than_a_portion_that_is_too_much_goes_in_one_call() {
    let (_directory, store) = store();
    let count = PORTION as u64 * 2 + 3;
    for number in 0..count {
        let row = crate::ExecRow {
            ended_unix_ms: Some(number),
            end: Some(end(ExecStatus::Lost)),
            ..exec(number)
        };
        store.insert_exec(row, 0).await.unwrap();
        store.insert_container(container(number), 0).await.unwrap();
        let id = container(number).id;
        let ended = store.set_container_phase(id, Phase::Stopped, Some(number));
        ended.await.unwrap();
    }
    let keep = Retention {
        execs_max: 3,
        containers_max: 2,
        ..PLENTY
    };
    let gone = store.prune_excess(Principal::local(), keep).await.unwrap();
    assert_eq!(gone, (count - 3, count - 2));
    assert_eq!(left(&store).await, [count - 3, count - 2, count - 1]);
    let containers = store
        .ended_containers_page(Principal::local(), None, 9)
        .await
        .unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0].id, container(count - 1).id);
}
