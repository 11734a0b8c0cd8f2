//! Disk limits on a filesystem with project quotas: the kernel keeps them. Only the `vm` tier has such
//! a filesystem; see `tests/vm/init`.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::PathBuf;

use hotcell_runtime::disk_quota;
use hotcell_testkit::{Need, skip};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

/// Where a filesystem with project quotas is mounted; `None` where there is none.
fn quota_disk() -> Option<PathBuf> {
    let path = std::env::var_os("HOTCELL_QUOTA_DISK").map(PathBuf::from);
    if path.is_none() {
        skip(Need::Machine, "there is no filesystem with project quotas");
    }
    path
}

fn sh(client: &mut Client, container: &Value, script: &str) -> Value {
    let run = json!({ "container_id": container, "cmd": ["sh", "-c", script], "wait_s": 40 });
    let ran = client.ok("exec_start", run);
    assert_eq!(ran["complete"], true, "{script}: {ran}");
    ran
}

fn output(ran: &Value) -> String {
    let messages = ran["messages"].as_array().unwrap().iter();
    messages.filter_map(|one| one["data"].as_str()).collect()
}

fn stats(client: &mut Client, container: &Value) -> Value {
    let uri = format!("stats://{}", container.as_str().unwrap());
    let read = client.request("resources/read", json!({ "uri": uri }));
    let text = read.unwrap()["contents"][0]["text"].clone();
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

#[test]
fn the_kernel_refuses_to_write_more_than_a_container_may_have() {
    let Some(disk) = quota_disk() else { return };
    let home = Home::below(&disk);
    let server = home.serve_with(&["--drain-grace-s", "0", "--require-limits", "--warm", "0"]);
    server.said("disk limits are project quotas");
    let mut client = server.client();
    let spawn = json!({ "disk": "16m" });
    let id = client.ok("spawn", spawn.clone())["container_id"].clone();
    let other = client.ok("spawn", spawn)["container_id"].clone();
    assert_eq!(
        stats(&mut client, &id)["enforced_by"]["disk"],
        "project_quota"
    );

    // By one file, by a deleted one, by a sparse one that is filled, and in a closed directory.
    for script in [
        "head -c 30000000 /dev/zero >full",
        "exec 5>gone; rm gone; head -c 30000000 /dev/zero >&5",
        "truncate -s 1g sparse && head -c 30000000 /dev/zero | dd of=sparse conv=notrunc status=none",
        "mkdir d && cd d && exec 5>full && chmod 0 . && head -c 30000000 /dev/zero >&5",
    ] {
        let ran = sh(&mut client, &id, script);
        assert_eq!(ran["status"], "failed", "{script}: {ran}");
        let told = output(&ran);
        assert!(
            told.contains("quota exceeded") || told.contains("No space"),
            "{told}"
        );
        sh(
            &mut client,
            &id,
            "chmod -R 700 . ; rm -rf full gone sparse d",
        );
    }
    // By files without content: some 10000 are allowed.
    let ran = sh(
        &mut client,
        &id,
        "mkdir d; seq 20000 | (cd d; xargs touch 2>/dev/null); ls d | wc -l",
    );
    let told = output(&ran);
    let count = told
        .lines()
        .last()
        .and_then(|line| line.trim().parse::<u64>().ok());
    assert!((9_000..=10_000).contains(&count.unwrap()), "{told}");
    client.ok("fs_delete", json!({ "container_id": id, "path": "d" }));

    // What the server writes is refused with the limit and what to do, and nobody else suffers.
    sh(&mut client, &id, "head -c 16000000 /dev/zero >most");
    let large = json!({ "container_id": id, "path": "more", "content": "x".repeat(2_000_000) });
    let answer = client.call("fs_write", large.clone());
    let said = answer["structuredContent"].to_string();
    assert!(said.contains("resource_exhausted"), "{said}");
    assert!(
        said.contains("disk limit of 16 MiB and 10000 files"),
        "{said}"
    );
    assert!(said.contains("fs_delete"), "{said}");
    let elsewhere =
        json!({ "container_id": other, "path": "more", "content": "x".repeat(2_000_000) });
    client.ok("fs_write", elsewhere);
    client.ok("fs_delete", json!({ "container_id": id, "path": "most" }));
    client.ok("fs_write", large);
    assert!(server.terminate().success());
}

#[test]
fn a_quota_outlives_the_server_and_goes_with_the_container() {
    let Some(disk) = quota_disk() else { return };
    let home = Home::below(&disk);
    let server = home.serve_with(&["--warm", "0", "--disk", "16m"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "persistent": true }))["container_id"].clone();
    sh(&mut client, &id, "head -c 10000000 /dev/zero >kept");
    let files = std::fs::read_dir(home.path().join("tree"))
        .unwrap()
        .flatten();
    let node = files
        .map(|entry| entry.path())
        .find(|path| path.join("fs").is_dir());
    let node = std::fs::File::open(node.unwrap().join("fs")).unwrap();
    let project = disk_quota::project_of(std::os::fd::AsFd::as_fd(&node))
        .unwrap()
        .unwrap();
    assert!(disk_quota::used(&disk, project).unwrap().bytes >= 10_000_000);
    server.kill();

    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let mut client = server.client();
    let ran = sh(&mut client, &id, "head -c 10000000 /dev/zero >more");
    assert_eq!(ran["status"], "failed", "{ran}");
    assert_eq!(
        stats(&mut client, &id)["enforced_by"]["disk"],
        "project_quota"
    );
    client.ok("kill", json!({ "container_id": id, "force": true }));
    drop(node);
    let left = disk_quota::used(&disk, project).unwrap();
    assert_eq!((left.bytes, left.files), (0, 0));
    assert!(server.terminate().success());
}
