//! A state directory that is in use, damaged, too new, gone or full: a clear message, and the
//! existing state is preserved.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::server;
use crate::support::{self, home::Home};

/// Starts a server that must refuse; returns its error.
fn refused(home: &Home) -> String {
    let output = home.run(&["serve", "--port", "0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// A state directory in which a persistent container `keep` runs, and no server.
fn with_container() -> Home {
    let home = Home::new();
    let server = home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "keep", "persistent": true }));
    let write = json!({ "container_id": "keep", "path": "note", "content": "precious" });
    client.ok("fs_write", write);
    assert!(server.terminate().success());
    home
}

/// Serves, finds the note in a container, and removes the container.
fn find_note(home: &Home, container: &str) {
    let server = home.serve();
    let mut client = server.client();
    let read = json!({ "container_id": container, "path": "note" });
    assert_eq!(client.ok("fs_read", read)["content"], "precious");
    client.ok("kill", json!({ "container_id": container }));
    assert!(server.terminate().success());
}

/// The database, with all that is in it in one file.
fn settled_database(home: &Home) -> PathBuf {
    let path = database(home);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let settle = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], settle)
        .unwrap();
    path
}

/// The database, whatever it is called.
fn database(home: &Home) -> PathBuf {
    let entries = std::fs::read_dir(home.path()).unwrap().flatten();
    let mut paths = entries.map(|entry| entry.path());
    let is_database = |path: &PathBuf| {
        let head = std::fs::read(path).unwrap_or_default();
        head.starts_with(b"SQLite format 3\0")
    };
    paths.find(is_database).expect("there is a database")
}

#[test]
fn a_deleted_database_loses_no_container() {
    let home = with_container();
    let id = home.containers()[0].to_string();
    let database = database(&home);
    for suffix in ["", "-wal", "-shm"] {
        let mut path = database.clone().into_os_string();
        path.push(suffix);
        let _ = std::fs::remove_file(path);
    }
    find_note(&home, &id);
}

#[test]
fn a_damaged_database_is_named_and_not_touched() {
    let home = with_container();
    let database = settled_database(&home);
    let whole = std::fs::read(&database).unwrap();
    let mut damaged = whole.clone();
    damaged[..4096.min(whole.len())].fill(b'x');
    std::fs::write(&database, &damaged).unwrap();
    let said = refused(&home);
    assert!(said.contains("damaged") && said.contains("aside"), "{said}");
    assert!(std::fs::read(&database).unwrap() == damaged);
    assert_eq!(home.containers().len(), 1);
    std::fs::write(&database, whole).unwrap();
    find_note(&home, "keep");
}

#[test]
fn a_database_of_a_newer_version_is_not_touched() {
    let home = with_container();
    let database = settled_database(&home);
    let whole = std::fs::read(&database).unwrap();
    // The header holds `user_version` at offset 60, most significant byte first.
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    std::fs::write(&database, &newer).unwrap();
    let said = refused(&home);
    assert!(
        said.contains("newer Hotcell") && said.contains("9999"),
        "{said}"
    );
    std::fs::write(&database, whole).unwrap();
    find_note(&home, "keep");
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let home = Home::new();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut command = home.command(&["serve", "--port", "0", "--state-dir"]);
    let output = command.arg(file.join("state")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("file/state"), "{said}");
}

#[test]
fn a_database_that_is_deleted_under_the_server_breaks_nothing_for_the_next() {
    let home = with_container();
    let id = home.containers()[0].to_string();
    // No pool: a warm container without its row would be adopted as a caller's.
    let server = home.serve_with(&["--warm", "0"]);
    let attach = json!({ "target": "keep", "client_name": "test", "session_id": "1" });
    server.client().ok("attach", attach);
    std::fs::remove_file(database(&home)).unwrap();
    // It may refuse requests now, but it keeps answering.
    server.client().call("list_containers", json!({}));
    server
        .client()
        .call("fs_list", json!({ "container_id": "keep", "path": "." }));
    server.kill();
    // Data that SQLite has not moved to the database yet is not discarded silently.
    let said = refused(&home);
    assert!(said.contains("-wal") && said.contains("aside"), "{said}");
    for suffix in ["wal", "shm"] {
        let _ = std::fs::remove_file(home.path().join(format!("hotcell.db-{suffix}")));
    }
    find_note(&home, &id);
}

/// A small filesystem over a state directory, for as long as this lives.
struct SmallDisk<'a>(&'a Home);

impl<'a> SmallDisk<'a> {
    /// `None` if we may not mount.
    fn mount(home: &'a Home, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=700"),
                "tmpfs",
            ])
            .arg(home.path())
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(home));
        }
        let reason = "no filesystem can be mounted here";
        hotcell_testkit::skip(hotcell_testkit::Need::Mounts, reason);
        None
    }

    /// Remounts it read-only or writable.
    fn remount(&self, option: &str) {
        let remounted = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.0.path())
            .status();
        assert!(remounted.is_ok_and(|status| status.success()), "{option}");
    }

    /// Fills the disk; returns the file that does so.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [64 << 10, 512, 1] {
            while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "a mount was left"
        );
    }
}

#[test]
fn a_full_disk_is_told_and_what_was_there_stays() {
    let home = Home::operated();
    let Some(disk) = SmallDisk::mount(&home, "24m") else {
        return;
    };
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "keep", "persistent": true }));
    let write = json!({ "container_id": "keep", "path": "note", "content": "precious" });
    client.ok("fs_write", write);
    // Deleting still works and frees space.
    support::wait_until("nothing is being made", || {
        client.ok("system_status", json!({}))["warm"][0]["ready"] == 1
    });
    let filler = disk.fill();
    // Every call that needs disk space reports the lack of it, and nothing crashes.
    assert_eq!(client.refused("spawn", json!({})), "resource_exhausted");
    let read = json!({ "container_id": "keep", "path": "note" });
    assert_eq!(client.ok("fs_read", read.clone())["content"], "precious");
    let more = json!({ "container_id": "keep", "path": "more", "content": "x".repeat(100_000) });
    assert_eq!(client.refused("fs_write", more), "resource_exhausted");
    std::fs::remove_file(filler).unwrap();
    let run = json!({ "container_id": "keep", "cmd": ["cat", "note"], "wait_s": 30 });
    assert_eq!(
        client.ok("exec_start", run)["messages"][0]["data"],
        "precious"
    );
    client.ok("kill", json!({ "container_id": "keep" }));
    assert!(server.terminate().success());
}

#[test]
fn a_read_only_disk_is_told_at_start_and_can_be_checked() {
    let home = Home::new();
    let Some(disk) = SmallDisk::mount(&home, "24m") else {
        return;
    };
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    server.client().ok("spawn", json!({ "alias": "gone" }));
    assert!(server.terminate().success());
    disk.remount("ro");
    let said = refused(&home);
    assert!(
        said.contains("Read-only file system") && said.contains(home.path().to_str().unwrap()),
        "{said}"
    );
    let checked = home.run(&["state", "check"]);
    assert!(checked.status.success(), "{checked:?}");
    disk.remount("rw");
    let server = home.serve();
    let listed = json!({ "include_stopped": true });
    let listed = server.client().ok("list_containers", listed);
    assert_eq!(listed["containers"][0]["alias"], "gone", "{listed}");
    assert!(server.terminate().success());
}

#[test]
fn a_second_server_is_refused_and_the_first_goes_on_until_it_dies() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell" }));
    for _ in 0..3 {
        let said = refused(&home);
        let pid = format!("process {}", server.pid());
        assert!(
            said.contains(&pid) && said.contains("--state-dir"),
            "{said}"
        );
        let run = json!({ "container_id": "cell", "cmd": ["true"], "wait_s": 30 });
        assert_eq!(client.ok("exec_start", run)["status"], "succeeded");
    }
    // Nothing of the first server has to be removed by hand.
    server.kill();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let read = json!({ "container_id": "cell", "path": "." });
    server.client().ok("fs_list", read);
    assert!(server.terminate().success());
}

#[test]
fn output_waits_for_room_on_a_full_disk_and_none_is_lost() {
    let home = Home::new();
    let Some(disk) = SmallDisk::mount(&home, "24m") else {
        return;
    };
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell" }));
    // It continues after a signal, which needs no disk space. The shell reports the signal on
    // stderr.
    let script = "exec 2>/dev/null; trap 'go=yes' USR1; echo ready; until [ -n \"$go\" ]; do sleep 0.01; done; \
                  seq 1 200000";
    let run = json!({ "container_id": "cell", "cmd": ["sh", "-c", script] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    support::wait_until("it can be signalled", || {
        let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 1 }));
        polled["messages"][0]["data"] == "ready\n"
    });
    let filler = disk.fill();
    client.ok("exec_input", json!({ "exec_id": exec, "signal": "USR1" }));
    // The disk was full when its output arrived, which the poll reports.
    support::wait_until("its output waits", || {
        let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 1 }));
        assert_eq!(polled["complete"], false, "{polled}");
        polled["reason"].is_string()
    });
    std::fs::remove_file(filler).unwrap();
    let numbers = (1..=200_000).map(|number| format!("{number}\n"));
    let expected: String = std::iter::once("ready\n".to_owned())
        .chain(numbers)
        .collect();
    let mut text = String::new();
    client.follow(&exec, |message| {
        text.push_str(message["data"].as_str().unwrap());
    });
    let at = text
        .bytes()
        .zip(expected.bytes())
        .position(|(one, other)| one != other);
    let near = at.map(|at| &text[at.saturating_sub(40)..(at + 40).min(text.len())]);
    assert!(
        text == expected,
        "{} bytes of {}, other at {at:?}: {near:?}",
        text.len(),
        expected.len()
    );
    assert!(server.terminate().success());
}

#[test]
fn the_state_directory_is_its_owners_alone() {
    let scratch = support::scratch();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    let serve = |directory: &Path| {
        let mut command = Command::new(support::hotcell());
        command
            .args(["serve", "--port", "0", "--state-dir"])
            .arg(directory);
        command.stdin(Stdio::null());
        command
    };
    let open = scratch.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let refused = server::output(&mut serve(&open));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("chmod 700"), "{said}");
    assert_eq!(
        std::fs::read_dir(&open).unwrap().count(),
        0,
        "it wrote there"
    );

    // A readable one is closed, and containers below it still work.
    let home = Home::new();
    std::fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    let server = home.serve();
    assert_eq!(mode(home.path()) & 0o777, 0o700);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let run =
        json!({ "container_id": id, "cmd": ["sh", "-c", "echo hi > f; cat f"], "wait_s": 30 });
    assert_eq!(client.ok("exec_start", run)["messages"][0]["data"], "hi\n");
    assert!(server.terminate().success());
}

/// Whether a file below a directory holds these bytes.
fn is_in_a_file(directory: &Path, secret: &str) -> bool {
    // A directory that is removed meanwhile contains nothing.
    let Ok(entries) = std::fs::read_dir(directory) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => is_in_a_file(&path, secret),
            Ok(kind) if kind.is_file() => {
                let bytes = std::fs::read(path).unwrap_or_default();
                bytes
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes())
            }
            _ => false,
        }
    })
}

#[test]
fn what_was_secret_is_in_no_file_soon_after_the_end() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let spawn = json!({ "env": { "TOKEN": "container-secret-7a31" } });
    let id = client.ok("spawn", spawn)["container_id"].clone();
    let run = json!({ "container_id": id, "cmd": ["sleep", "1000"], "stdin": "input-secret-55c0", "env": { "KEY": "exec-secret-e901" } });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    let holds = |secret: &str| is_in_a_file(home.path(), secret);
    for secret in [
        "container-secret-7a31",
        "exec-secret-e901",
        "input-secret-55c0",
    ] {
        assert!(holds(secret), "{secret}: it looks in the wrong place");
    }
    client.ok("exec_cancel", json!({ "exec_id": exec }));
    support::wait_until("what the exec had is gone", || {
        !holds("exec-secret-e901") && !holds("input-secret-55c0")
    });
    assert!(holds("container-secret-7a31"));
    client.ok("kill", json!({ "container_id": id }));
    support::wait_until("what the container had is gone", || {
        !holds("container-secret-7a31")
    });
    assert!(server.terminate().success());
}
