//! What the operator decides about limits and root, through the real server on its own engine.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use hotcell_runtime::probe;
use hotcell_testkit::{Need, skip};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

/// Doubles a variable of the shell until memory runs out.
const HOG: &str = "x=$(head -c 1000000 /dev/zero | tr '\\0' x); while :; do x=$x$x; done";

/// Runs a script to its end; returns the last poll.
fn sh(client: &mut Client, container: &Value, script: &str) -> Value {
    let run = json!({ "container_id": container, "cmd": ["sh", "-c", script], "wait_s": 40 });
    let ran = client.ok("exec_start", run);
    assert_eq!(ran["complete"], true, "{script}: {ran}");
    ran
}

fn said(ran: &Value) -> &str {
    ran["messages"][0]["data"].as_str().unwrap_or_default()
}

/// What enforces the limits of a container.
fn enforced_by(client: &mut Client, container: &Value) -> Value {
    let uri = format!("stats://{}", container.as_str().unwrap());
    let read = client.request("resources/read", json!({ "uri": uri }));
    let text = read.unwrap()["contents"][0]["text"].clone();
    let stats: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    stats["enforced_by"].clone()
}

#[test]
fn memory_that_runs_out_is_told_as_such_and_the_container_works_on() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({ "memory": "64m" }))["container_id"].clone();
    if enforced_by(&mut client, &id)["memory"] != "cgroup" {
        assert!(server.terminate().success());
        return skip(Need::Cgroups, "no cgroup limits memory on this host");
    }
    // What stays within the limit succeeds.
    let ran = sh(&mut client, &id, "head -c 1000000 /dev/zero | wc -c");
    assert_eq!(
        (said(&ran), &ran["status"]),
        ("1000000\n", &json!("succeeded"))
    );
    let ran = sh(&mut client, &id, HOG);
    assert_eq!(ran["status"], "oom_killed", "{ran}");
    assert_eq!(said(&sh(&mut client, &id, "echo alive")), "alive\n");
    assert!(server.terminate().success());
}

/// A container that takes too much of the disk is told so, and works again once that is deleted.
pub(crate) fn run_out_of_disk(client: &mut Client) {
    let made = client.ok("spawn", json!({ "disk": "16m" }));
    let id = made["container_id"].clone();
    let fill = "head -c 30000000 /dev/zero >full; sleep 1000";
    let ran = sh(client, &id, fill);
    assert_eq!(ran["status"], "disk_limit", "{ran}");
    let write = json!({ "container_id": id, "path": "more", "content": "x" });
    assert_eq!(
        client.refused("fs_write", write.clone()),
        "resource_exhausted"
    );
    client.ok("fs_delete", json!({ "container_id": id, "path": "full" }));
    client.ok("fs_write", write);
    assert_eq!(said(&sh(client, &id, "echo alive")), "alive\n");
    client.ok("kill", json!({ "container_id": id, "force": true }));
}

#[test]
fn disk_space_that_runs_out_is_told_as_such_and_deleting_makes_room() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    run_out_of_disk(&mut server.client());
    assert!(server.terminate().success());
}

#[test]
fn an_exec_is_root_only_where_the_operator_allows_it() {
    if !rustix::process::geteuid().is_root() && probe::subordinate_ids().is_err() {
        return skip(Need::ContainerRoot, "containers have no root on this host");
    }
    let home = Home::new();
    let as_root = |container: &Value| json!({ "container_id": container, "cmd": ["id", "-u"], "as_root": true, "wait_s": 40 });
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    assert_eq!(client.refused("exec_start", as_root(&id)), "denied");
    assert_eq!(said(&sh(&mut client, &id, "id -u")), "1000\n");
    assert!(server.terminate().success());

    let server = home.serve_with(&["--drain-grace-s", "0", "--allow-as-root"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let ran = client.ok("exec_start", as_root(&id));
    assert_eq!(said(&ran), "0\n", "{ran}");
    // Only a container that asks for root has it.
    assert_eq!(said(&sh(&mut client, &id, "id -u")), "1000\n");
    assert!(server.terminate().success());
}

#[test]
fn with_required_limits_no_container_is_made_without_them() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "only root can hide its cgroups");
    }
    // Where there are cgroups it makes no difference.
    let with = Home::new();
    let server = with.serve_with(&["--drain-grace-s", "0", "--require-limits"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    assert_eq!(enforced_by(&mut client, &id)["memory"], "cgroup");
    assert!(server.terminate().success());

    // Without, a container is made all the same, and nothing works where limits are required.
    let without = Home::new().without_cgroups();
    let server = without.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    assert_ne!(enforced_by(&mut client, &id)["cpus"], "cgroup");
    assert!(server.terminate().success());
    let run = ["run", "--require-limits", "--", "echo", "hi"];
    for arguments in [&["serve", "--port", "0", "--require-limits"][..], &run] {
        let output = without.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{told}");
        assert!(told.contains("cannot limit memory"), "{told}");
        assert_eq!(output.stdout, b"");
    }
    let output = without.run(&["run", "--", "echo", "hi"]);
    assert_eq!(output.stdout, b"hi\n", "{output:?}");
}
