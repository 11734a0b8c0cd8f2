use std::fs;
use std::path::{Path, PathBuf};

use hotcell_domain::{ExecStatus, Phase, Stream, Usage};

use super::*;
use crate::samples::{container, end, exec, store};
use crate::{Store, StoreFaultKind as Kind};

/// What the execs wrote.
const OUTPUT: &[u8] = "wört\n".as_bytes();

/// A state with one living container, one ended exec with output and one that runs.
async fn sample() -> (tempfile::TempDir, Store) {
    let (directory, store) = store();
    let row = container(1);
    store.insert_container(row.clone(), 0).await.unwrap();
    let running = (row.id.clone(), Phase::Running);
    store
        .set_container_phase(running.0, running.1, None)
        .await
        .unwrap();
    for number in [1, 2] {
        store.insert_exec(exec(number), 0).await.unwrap();
        let mut log = store.log_writer(&exec(number).id, 1 << 20);
        log.append(vec![crate::LogPiece {
            agent_seq: 1,
            stream: Stream::Stdout,
            unix_ms: 1,
            data: OUTPUT.into(),
        }])
        .await
        .unwrap();
    }
    let mut ended = end(ExecStatus::Succeeded);
    ended.usage = Some(Usage {
        wall_ms: 1,
        user_ms: 1,
        system_ms: 1,
        max_rss_bytes: 1,
        stdout_bytes: OUTPUT.len() as u64,
        stderr_bytes: 0,
    });
    store.end_exec(exec(1).id, ended, 9).await.unwrap();
    (directory, store)
}

fn head(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("logs/{}.head", exec(number).id))
}

fn kinds(directory: &Path) -> Vec<Kind> {
    let found = check(directory).unwrap().unwrap();
    found.faults.iter().map(|fault| fault.kind).collect()
}

fn sql(directory: &Path, sql: &str) {
    let connection = Connection::open(directory.join("hotcell.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_state_that_agrees_is_counted_with_and_without_a_server() {
    let (directory, store) = sample().await;
    for is_served in [true, false] {
        let found = check(directory.path()).unwrap().unwrap();
        assert_eq!(found.faults, [], "served: {is_served}");
        assert_eq!((found.execs, found.logs), (2, 2));
        assert_eq!(found.containers.len(), 1);
        assert_eq!(found.containers[0].phase, Phase::Running);
        assert!(found.is_current && found.schema == SCHEMA);
        if is_served {
            // Nothing of it is locked by the look.
            store.insert_exec(exec(3), 0).await.unwrap();
            sql(
                directory.path(),
                "DELETE FROM execs WHERE log_bytes = 0 AND created_unix_ms = 3",
            );
        }
    }
}

#[tokio::test]
async fn a_directory_without_a_database_has_nothing_to_check() {
    let directory = tempfile::tempdir().unwrap();
    assert!(check(directory.path()).unwrap().is_none());
}

#[tokio::test]
async fn each_difference_is_found_and_named() {
    type Break = fn(&Path);
    let cases: [(Kind, Break); 8] = [
        (Kind::LogSize, |path| {
            fs::remove_file(head(path, 1)).unwrap();
        }),
        (Kind::LogSize, |path| {
            let mut bytes = fs::read(head(path, 1)).unwrap();
            bytes.pop();
            fs::write(head(path, 1), bytes).unwrap();
        }),
        (Kind::LogDamaged, |path| {
            let mut bytes = fs::read(head(path, 1)).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(head(path, 1), bytes).unwrap();
        }),
        (Kind::LogIncomplete, |path| {
            let more = "UPDATE execs SET ending = replace(ending, '\"stdout_bytes\":6', '\"stdout_bytes\":7')";
            sql(path, more);
        }),
        (Kind::LogWithoutExec, |path| {
            fs::copy(head(path, 1), head(path, 7)).map(drop).unwrap();
        }),
        (Kind::ExecWithoutContainer, |path| {
            sql(
                path,
                "UPDATE containers SET ended_unix_ms = 5, phase = 'stopped'",
            );
        }),
        (Kind::Sums, |path| {
            sql(path, "UPDATE ended SET log_bytes = 0");
        }),
        (Kind::Row, |path| {
            sql(path, "UPDATE containers SET spec = 'odd'");
        }),
    ];
    for (kind, damage) in cases {
        let (directory, store) = sample().await;
        drop(store);
        assert_eq!(kinds(directory.path()), [], "before {kind:?}");
        damage(directory.path());
        assert_eq!(kinds(directory.path()), [kind]);
    }
}

#[tokio::test]
async fn what_a_lost_exec_did_not_deliver_is_no_difference() {
    let (directory, store) = sample().await;
    let mut bytes = fs::read(head(directory.path(), 2)).unwrap();
    bytes.extend_from_slice(b"torn");
    fs::write(head(directory.path(), 2), bytes).unwrap();
    let lost = end(ExecStatus::Lost);
    store.end_exec(exec(2).id, lost, 9).await.unwrap();
    assert_eq!(kinds(directory.path()), []);
}

#[tokio::test]
async fn a_newer_database_is_refused_and_an_older_one_is_left_to_the_server() {
    let (directory, store) = sample().await;
    drop(store);
    sql(directory.path(), "PRAGMA user_version = 9999");
    let refused = check(directory.path()).unwrap_err().to_string();
    assert!(refused.contains("newer Hotcell"), "{refused}");
    sql(directory.path(), "PRAGMA user_version = 1");
    let found = check(directory.path()).unwrap().unwrap();
    assert!(!found.is_current && found.faults.is_empty());
}

#[tokio::test]
async fn a_copy_taken_while_the_server_writes_agrees_with_itself() {
    let (directory, store) = sample().await;
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("logs")).unwrap();
    let database = copy.path().join("hotcell.db");
    assert_eq!(copy_database(directory.path(), &database).unwrap(), SCHEMA);
    // Meanwhile one exec is forgotten, and another writes on.
    fs::remove_file(head(directory.path(), 1)).unwrap();
    store.insert_exec(exec(3), 0).await.unwrap();
    copy_logs(directory.path(), &database, |name, file, bytes| {
        assert!(is_log_name(name), "{name}");
        let mut to = fs::File::create(copy.path().join("logs").join(name)).unwrap();
        let copied = std::io::copy(&mut std::io::Read::take(file, bytes), &mut to).unwrap();
        assert_eq!(copied, bytes);
        Ok::<(), StoreError>(())
    })
    .unwrap();
    let found = check(copy.path()).unwrap().unwrap();
    assert_eq!((found.faults, found.execs), (Vec::new(), 1));
}

#[test]
fn names_of_logs_are_told_from_others() {
    let id = exec(1).id;
    for good in ["head", "tail0", "tail1", "tail15"] {
        assert!(is_log_name(&format!("{id}.{good}")), "{good}");
    }
    for odd in ["tail16", "tail", "", "head.x", "../x", "head/.."] {
        assert!(!is_log_name(&format!("{id}.{odd}")), "{odd}");
    }
    assert!(!is_log_name("../../etc/passwd") && !is_log_name("e_.head"));
}
