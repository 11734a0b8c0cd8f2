//! Many containers come and go, and afterwards the server holds no more resources of this host than
//! before.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::caller::Caller;
use super::number;
use crate::support::home::Home;
use crate::support::server::Server;
use crate::support::wait_until;

/// As many as fit into a run of all tests.
const CONTAINERS: u64 = 120;

/// Created before the first measurement, so that caches are filled.
const CONTAINERS_BEFORE: u64 = 24;

const CALLERS: u64 = 4;

/// More growth than this is a leak: real leaks are counted in KiB per container.
const MEMORY_GROWTH_BYTES_MAX: u64 = 24 << 20;

/// Files of the state directory that are opened at moments of their own: the second connection to the
/// database, and a segment of the audit log while it is compressed.
const STATE_FILES_ONCE: usize = 4;

/// The resources that a server holds.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// Those that are no files of the state directory.
    descriptors: usize,
    state_files: usize,
    threads: usize,
    children: usize,
    /// Files of containers, workspaces, logs and id ranges.
    files: usize,
}

/// What the descriptors of a process lead to.
fn open_files(process: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(process.join("fd")).unwrap();
    // One may be closed meanwhile.
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.collect()
}

impl Held {
    fn by(home: &Home, server: &Server) -> Self {
        let count = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
        let process = Path::new("/proc").join(server.pid().to_string());
        let state = ["run/containers", "tree", "logs", "run/ids"];
        let children = crate::support::pids().into_iter();
        let is_child = |pid: &u32| crate::crash::moment::parent_of(*pid) == server.pid();
        let open = open_files(&process);
        let state_files = open
            .iter()
            .filter(|path| path.starts_with(home.path()))
            .count();
        Self {
            descriptors: open.len() - state_files,
            state_files,
            threads: count(&process.join("task")),
            children: children.filter(is_child).count(),
            files: state
                .iter()
                .map(|name| count(&home.path().join(name)))
                .sum(),
        }
    }
}

/// Creates this many containers, uses each and kills it.
fn churn(home: &Home, containers: u64) {
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(move || {
                let mut caller = Caller::connect(home).unwrap();
                for _ in 0..containers / CALLERS {
                    let id = caller.ok("spawn", &json!({}))["container_id"].clone();
                    let run = json!({ "container_id": id, "cmd": ["true"], "wait_s": 30 });
                    assert_eq!(caller.ok("exec_start", &run)["status"], "succeeded");
                    caller.ok("kill", &json!({ "container_id": id, "force": true }));
                }
            });
        }
    });
}

#[test]
fn containers_that_come_and_go_leave_nothing_with_the_server() {
    let home = Home::new();
    // Without a pool, which would be in a different state each time.
    let server = home.serve_with(&[
        "--drain-grace-s",
        "0",
        "--warm",
        "0",
        "--spawns-per-minute",
        "1000000",
    ]);
    churn(&home, CONTAINERS_BEFORE);
    let mut before = Held::by(&home, &server);
    // Threads that wait for blocking work end after a while without any.
    wait_until("the server is at rest", || {
        let now = Held::by(&home, &server);
        std::mem::replace(&mut before, now) == before && before.threads < 16
    });
    let memory_before = server.rss_bytes();
    let count = number("HOTCELL_CHAOS_CONTAINERS", CONTAINERS);
    churn(&home, count);
    wait_until("it holds what it held before", || {
        let now = Held::by(&home, &server);
        let is_back = now.descriptors <= before.descriptors
            && now.state_files <= before.state_files + STATE_FILES_ONCE
            && now.threads <= before.threads
            && now.children <= before.children
            && now.files <= before.files;
        if !is_back {
            eprintln!("{now:?}, before {before:?}");
        }
        is_back
    });
    let growth = server.rss_bytes().saturating_sub(memory_before);
    eprintln!("{count} containers: {} KiB of memory more", growth >> 10);
    assert!(growth < MEMORY_GROWTH_BYTES_MAX, "{growth} bytes");
    assert!(server.terminate().success());
    let checked = home.run(&["state", "check"]);
    assert!(checked.status.success(), "{checked:?}");
}
