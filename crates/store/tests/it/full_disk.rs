//! A full disk: clear errors, nothing lost, and work again when there is room.
//!
//! The test runs itself once more in a mount namespace of its own, where a small tmpfs is
//! mounted that goes with the process.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use hotcell_domain::{
    Command as Program, ContainerId, ExecEnd, ExecId, ExecStatus, Principal, Stdin, Stream,
};
use hotcell_store::{ExecRow, LogPiece, Store, StoreError};

const DISK: &str = "HOTCELL_STORE_SMALL_DISK";

const SCRIPT: &str = r#"mount -t tmpfs -o size=16m none "$HOTCELL_STORE_SMALL_DISK" && exec "$@""#;

#[test]
fn a_full_disk_loses_nothing_and_is_used_again_when_there_is_room() {
    if let Some(disk) = std::env::var_os(DISK) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        return runtime.unwrap().block_on(on_a_small_disk(Path::new(&disk)));
    }
    let disk = tempfile::tempdir().unwrap();
    let namespaces: &[&str] = if rustix::process::geteuid().is_root() {
        &["--mount"]
    } else {
        &["--mount", "--map-root-user"]
    };
    let output = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", SCRIPT, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "full_disk::a_full_disk_loses_nothing_and_is_used_again_when_there_is_room",
        ])
        .env(DISK, disk.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
}

fn exec(number: u64) -> ExecRow {
    let mut command = Program::new(vec!["cat".to_owned()]).unwrap();
    command.set_stdin(Stdin::Text("x".repeat(20_000))).unwrap();
    ExecRow {
        id: ExecId::from_parts(number, [7; 10]),
        container: ContainerId::from_parts(1, [7; 10]),
        principal: Principal::local(),
        key: None,
        command,
        created_unix_ms: number,
        oom_kills_before: 0,
        ended_unix_ms: None,
        end: None,
    }
}

async fn on_a_small_disk(disk: &Path) {
    let store = Store::open(disk).unwrap();
    let filler = disk.join("filler");
    std::fs::write(&filler, vec![1; 8 << 20]).unwrap();
    let noted = execs_until_full(&store).await;
    let ids = async || {
        let rows = store.active_execs().await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, noted);
    logs_until_full(&store, &filler).await;
    store.insert_exec(exec(9999), 0).await.unwrap();
    assert_eq!(ids().await.len(), noted.len() + 1);
    let end = ExecEnd {
        status: ExecStatus::Succeeded,
        exit_code: Some(0),
        signal: None,
        reason: None,
        not_started: None,
        usage: None,
    };
    for id in ids().await {
        store.end_exec(id, end.clone(), 1).await.unwrap();
    }
    drop(store);
    let store = Store::open(disk).unwrap();
    assert!(store.active_execs().await.unwrap().is_empty());
    assert_eq!(store.prune_execs(2).await.unwrap(), noted.len() as u64 + 1);
}

/// Asks for several at once until one is refused, and answers those that were noted.
async fn execs_until_full(store: &Store) -> Vec<ExecId> {
    let mut noted = Vec::new();
    for round in 0..200 {
        let ask = |number| {
            let store = store.clone();
            let id = exec(number).id;
            tokio::spawn(async move { (id, store.insert_exec(exec(number), 0).await) })
        };
        let asked: Vec<_> = (1..=8).map(|number| ask(round * 8 + number)).collect();
        let mut is_full = false;
        for one in asked {
            match one.await.unwrap() {
                (id, Ok(_)) => noted.push(id),
                (_, Err(StoreError::Full)) => is_full = true,
                (_, Err(error)) => panic!("{error:?}"),
            }
        }
        if is_full {
            return noted;
        }
    }
    panic!("a disk of 16 MiB took 32 MB");
}

/// Fills a log until nothing fits, makes room by removing `filler`, and goes on.
async fn logs_until_full(store: &Store, filler: &Path) {
    let id = exec(1).id;
    let mut log = store.log_writer(&id, 64 << 20);
    let text = |number: u64| Bytes::from(format!("{number} ").repeat(1000));
    let piece = |number: u64| LogPiece {
        agent_seq: number,
        stream: Stream::Stdout,
        unix_ms: 1,
        data: text(number),
    };
    let mut refused = 1;
    loop {
        match log.append(vec![piece(refused)]).await {
            Ok(_) => refused += 1,
            Err(StoreError::Full) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    let again = log.append(vec![piece(refused)]).await;
    assert!(again.is_err());
    assert_eq!(log.agent_seq(), refused - 1);
    let other = exec(2).id;
    let mut new = store.log_writer(&other, 64 << 20);
    assert!(new.append(vec![piece(1)]).await.is_err());
    let empty = store.read_log(&other, 0, 10).await.unwrap();
    assert!(empty.messages.is_empty());
    std::fs::remove_file(filler).unwrap();
    for number in refused..refused + 5 {
        let done = log.append(vec![piece(number)]).await;
        done.unwrap();
    }
    new.append(vec![piece(1)]).await.unwrap();
    let page = store.read_log(&id, 0, 64 << 20).await.unwrap();
    assert_eq!(page.messages.len() as u64, refused + 4);
    for message in page.messages {
        assert_eq!(message.data, text(message.seq));
    }
}
