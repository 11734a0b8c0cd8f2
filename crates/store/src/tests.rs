//! A store as a whole: who may open it, and what it does when its files are taken away.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hotcell_domain::ExecStatus;

use super::*;
use crate::samples::{container, end, exec, store};

#[tokio::test]
async fn a_store_is_one_server_s_until_the_last_clone_is_gone() {
    let (directory, store) = store();
    let clone = store.clone();
    drop(store);
    let refused = Store::open(directory.path());
    assert!(matches!(refused, Err(OpenError::Locked { .. })));
    clone.insert_exec(exec(1), 0).await.unwrap();
    drop(clone);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.living_execs().await.unwrap(), [exec(1)]);
    let log = store.log_writer(&exec(1).id, 100).unwrap();
    drop(store);
    assert!(Store::open(directory.path()).is_err());
    drop(log);
    assert!(Store::open(directory.path()).is_ok());
}

#[tokio::test]
async fn rows_are_brought_to_the_disk_while_others_are_noted() {
    let (directory, store) = store();
    for number in 1..20 {
        let (synced, noted) = tokio::join!(store.sync(), store.insert_exec(exec(number), 0));
        synced.unwrap();
        noted.unwrap();
    }
    assert_eq!(store.living_execs().await.unwrap().len(), 19);
    fs::remove_file(directory.path().join("hotcell.db-wal")).unwrap();
    let lost = store.sync().await;
    assert!(matches!(lost, Err(StoreError::Failed { .. })), "{lost:?}");
}

#[test]
fn nobody_else_can_read_what_is_stored() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    let store = Store::open(&directory).unwrap();
    let mut log = store.log_writer(&exec(1).id, 100).unwrap();
    log.append(1, hotcell_domain::Stream::Stdout, 1, b"x")
        .unwrap();
    let mode = |name: &str| {
        directory
            .join(name)
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode(""), mode("logs")), (0o700, 0o700));
    let log = format!("logs/{}.head", exec(1).id);
    for name in [
        "hotcell.db",
        "hotcell.db-wal",
        "hotcell.db-shm",
        "server.lock",
        &log,
    ] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_kill_at_any_moment() {
    let (directory, store) = store();
    for number in 1..=20 {
        store.insert_exec(exec(number), 0).await.unwrap();
        if number % 2 == 0 {
            let ended = end(ExecStatus::Succeeded);
            store.end_exec(exec(number).id, ended, 1).await.unwrap();
        }
        // What a killed server leaves is what its files hold now.
        let copy = tempfile::tempdir().unwrap();
        for name in ["hotcell.db", "hotcell.db-wal"] {
            fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
        }
        let left = Store::open(copy.path()).unwrap();
        let living = (1..=number).filter(|number| number % 2 == 1).map(exec);
        assert_eq!(
            left.living_execs().await.unwrap(),
            living.collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn a_deleted_database_is_noticed_and_works_again_when_it_is_back() {
    let (directory, store) = store();
    store.insert_exec(exec(1), 0).await.unwrap();
    for name in ["hotcell.db", "hotcell.db-wal"] {
        let (path, aside) = (directory.path().join(name), directory.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        let lost = store.insert_container(container(1), 0).await.unwrap_err();
        let cause = std::error::Error::source(&lost).unwrap().to_string();
        assert!(cause.contains("was deleted or replaced"), "{cause}");
        assert!(store.living_execs().await.is_err());
        fs::write(&path, "another").unwrap();
        assert!(store.exec(exec(1).id).await.is_err());
        fs::rename(&aside, &path).unwrap();
        assert_eq!(store.living_containers().await.unwrap(), []);
        assert_eq!(store.living_execs().await.unwrap(), [exec(1)]);
    }
}
