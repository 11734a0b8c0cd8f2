//! The store as a whole: exclusive access, and what happens when its files are deleted.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hotcell_domain::{ExecStatus, Phase, Principal};

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
    assert_eq!(store.active_execs().await.unwrap(), [exec(1)]);
    let log = store.log_file(&exec(1).id, 100).unwrap();
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
    assert_eq!(store.active_execs().await.unwrap().len(), 19);
    fs::remove_file(directory.path().join("hotcell.db-wal")).unwrap();
    let lost = store.sync().await;
    assert!(matches!(lost, Err(StoreError::Failed { .. })), "{lost:?}");
}

#[test]
fn nobody_else_can_read_what_is_stored() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    let store = Store::open(&directory).unwrap();
    let mut log = store.log_file(&exec(1).id, 100).unwrap();
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
        // A copy of the files is what a killed server would leave.
        let copy = tempfile::tempdir().unwrap();
        for name in ["hotcell.db", "hotcell.db-wal"] {
            fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
        }
        let left = Store::open(copy.path()).unwrap();
        let living = (1..=number).filter(|number| number % 2 == 1).map(exec);
        assert_eq!(
            left.active_execs().await.unwrap(),
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
        assert!(store.active_execs().await.is_err());
        fs::write(&path, "another").unwrap();
        assert!(store.exec(Principal::local(), exec(1).id).await.is_err());
        fs::rename(&aside, &path).unwrap();
        assert_eq!(store.active_containers().await.unwrap(), []);
        assert_eq!(store.active_execs().await.unwrap(), [exec(1)]);
    }
}

/// Whether a file of the store contains these bytes.
fn is_in_a_file(directory: &Path, secret: &str) -> bool {
    let files = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).any(|path| {
        let bytes = fs::read(path).unwrap();
        bytes
            .windows(secret.len())
            .any(|part| part == secret.as_bytes())
    })
}

/// Polls with a generous deadline.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn with_secret(number: u64, secret: &str) -> ExecRow {
    let mut row = exec(number);
    row.command.env.set("TOKEN", secret).unwrap();
    row
}

#[tokio::test]
async fn what_is_forgotten_is_soon_in_no_file() {
    let (directory, store) = store();
    let (path, log) = (directory.path(), directory.path().join("hotcell.db-wal"));
    let is_empty = || fs::metadata(&log).unwrap().len() == 0;
    until("the log is emptied once at the start", is_empty).await;
    let large = "hunter2".repeat(5000);
    for (number, secret) in [(1, "correct-horse"), (2, &large), (3, "still-needed")] {
        let noted = store.insert_exec(with_secret(number, secret), 0);
        noted.await.unwrap();
        // A large value is spread over several pages.
        let beginning = &secret[..secret.len().min(12)];
        assert!(is_in_a_file(path, beginning), "{beginning} is not found");
    }
    for number in [1, 2] {
        let ended = store.end_exec(exec(number).id, end(ExecStatus::Succeeded), 9);
        ended.await.unwrap();
    }
    let is_gone = || !is_in_a_file(path, "correct-horse") && !is_in_a_file(path, "hunter2");
    until("both secrets are gone", is_gone).await;
    assert!(is_in_a_file(path, "still-needed"));
    let mut row = container(4);
    row.spec.env.set("TOKEN", "battery-staple").unwrap();
    store.insert_container(row, 0).await.unwrap();
    assert!(is_in_a_file(path, "battery-staple"));
    let ended = store.set_container_phase(container(4).id, Phase::Stopped, Some(9));
    ended.await.unwrap();
    until("it is gone too", || !is_in_a_file(path, "battery-staple")).await;
}

#[tokio::test]
async fn what_was_forgotten_just_before_a_crash_is_removed_by_the_next_server() {
    let (directory, store) = store();
    let noted = store.insert_exec(with_secret(1, "correct-horse"), 0);
    noted.await.unwrap();
    let ended = store.end_exec(exec(1).id, end(ExecStatus::Succeeded), 9);
    ended.await.unwrap();
    let crashed = tempfile::tempdir().unwrap();
    for name in ["hotcell.db-wal", "hotcell.db"] {
        fs::copy(directory.path().join(name), crashed.path().join(name)).unwrap();
    }
    assert!(is_in_a_file(crashed.path(), "correct-horse"));
    let _next = Store::open(crashed.path()).unwrap();
    until("it is gone", || {
        !is_in_a_file(crashed.path(), "correct-horse")
    })
    .await;
}

#[tokio::test]
async fn a_store_in_memory_knows_its_rows_and_leaves_nothing_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::in_memory(directory.path()).unwrap();
    let other = Store::in_memory(directory.path()).unwrap();
    store.insert_exec(exec(1), 0).await.unwrap();
    store
        .end_exec(exec(1).id, end(ExecStatus::Succeeded), 1)
        .await
        .unwrap();
    store.insert_exec(exec(2), 0).await.unwrap();
    store.sync().await.unwrap();
    assert_eq!(store.active_execs().await.unwrap(), [exec(2)]);
    // Only the store that created them knows them.
    assert_eq!(other.active_execs().await.unwrap(), []);
    assert!(store.disk().unwrap().total_bytes > 0);
    drop((store, other));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
