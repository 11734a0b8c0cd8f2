//! The audit log of the real server: what it says, and that it loses nothing.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::process::Output;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::{self, home::Home};

fn audit(home: &Home, arguments: &[&str]) -> Output {
    let mut words = vec!["audit"];
    words.extend(arguments);
    home.run(&words)
}

/// Events that match, as JSON.
pub(crate) fn query(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let mut words = vec!["query", "--json"];
    words.extend(arguments);
    let output = audit(home, &words);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let event = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(event).collect()
}

fn verdict(home: &Home) -> Value {
    let output = audit(home, &["verify", "--json"]);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.success(), verdict["whole"] == true);
    verdict
}

pub(crate) fn names(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[test]
fn the_log_tells_who_did_what_and_no_secret() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let container = client.ok("spawn", json!({ "env": { "DB_PASSWORD": "hunter2" } }));
    let id = container["container_id"].as_str().unwrap().to_owned();
    let ran = client.ok(
        "exec_start",
        json!({ "container_id": id, "cmd": ["sh", "-c", "cat >/dev/null; exit 3 # --token hunter2"],
            "env": { "API_KEY": "hunter2" }, "stdin": "hunter2", "wait_s": 30 }),
    );
    let exec = ran["exec_id"].as_str().unwrap().to_owned();
    client.ok(
        "fs_write",
        json!({ "container_id": id, "path": "a.txt", "content": "hunter2" }),
    );
    client.ok("fs_read", json!({ "container_id": id, "path": "a.txt" }));
    client.ok("list_containers", json!({}));
    assert_eq!(
        client.refused("spawn", json!({ "network": "full" })),
        "denied"
    );
    assert_eq!(
        client.refused("kill", json!({ "container_id": "nobody" })),
        "not_found"
    );
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());

    let events = query(&home, &[]);
    assert_eq!(
        names(&events),
        [
            "SYSTEM_START",
            "CONTAINER_SPAWN",
            "EXEC_START",
            "EXEC_COMPLETE",
            "FS_WRITE",
            "FS_READ",
            "POLICY_DENIED",
            "CONTAINER_KILL",
            "CONTAINER_KILL",
            "SYSTEM_SHUTDOWN",
        ]
    );
    for file in fs::read_dir(home.path().join("audit")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
    }
    let [
        _,
        spawned,
        started,
        complete,
        written,
        read,
        denied,
        missing,
        ..,
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(spawned["created"], id.as_str());
    assert_eq!(spawned["args"]["env"], json!(["DB_PASSWORD"]));
    assert_eq!(
        (&started["target"], &started["created"]),
        (&json!(id), &json!(exec))
    );
    assert_eq!(started["args"]["stdin_bytes"], 7);
    assert!(started["client"].is_string() && started["client_version"].is_string());
    assert_eq!(
        (&complete["target"], &complete["args"]["exit_code"]),
        (&json!(exec), &json!(3))
    );
    assert_eq!(
        (&complete["outcome"], &complete["principal"]),
        (&json!("failed"), &json!("local"))
    );
    assert_eq!((&written["bytes"], &read["bytes"]), (&json!(7), &json!(7)));
    assert_eq!(
        (&denied["outcome"], &denied["args"]["rule"]),
        (&json!("denied"), &json!("allow_network"))
    );
    assert_eq!(
        (&missing["outcome"], &missing["code"]),
        (&json!("failed"), &json!("not_found"))
    );

    commands_agree(&home, &exec, events.len());
}

/// What the commands say of this log.
fn commands_agree(home: &Home, exec: &str, count: usize) {
    let about = query(home, &["--target", exec]);
    assert_eq!(names(&about), ["EXEC_START", "EXEC_COMPLETE"]);
    assert_eq!(query(home, &["--outcome", "denied"]).len(), 1);
    assert_eq!(query(home, &["--principal", "ann"]), [] as [Value; 0]);
    assert_eq!(query(home, &["--since", "1h"]).len(), count);
    assert_eq!(query(home, &["--until", "2000-01-01T00:00:00Z"]).len(), 0);
    let tail = audit(home, &["tail", "-n", "1"]);
    assert!(
        String::from_utf8(tail.stdout)
            .unwrap()
            .contains("SYSTEM_SHUTDOWN")
    );
    let export = audit(home, &["export"]);
    assert_eq!(
        export.stdout.split(|&byte| byte == b'\n').count(),
        count + 1
    );
    let verdict = verdict(home);
    assert_eq!(
        (&verdict["whole"], &verdict["anchored"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(verdict["head"]["seq"], count);
}

#[test]
fn changed_and_cut_off_logs_are_found_by_the_command() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let mut client = server.client();
    for _ in 0..5 {
        assert_eq!(
            client.refused("kill", json!({ "container_id": "nobody" })),
            "not_found"
        );
    }
    assert!(server.terminate().success());
    let file = fs::read_dir(home.path().join("audit"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let whole = fs::read_to_string(&file).unwrap();
    assert!(audit(&home, &["verify"]).status.success());
    fs::write(&file, whole.replacen("nobody", "nobodi", 1)).unwrap();
    let said = audit(&home, &["verify"]);
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.contains("event 2 ") && said.contains("NOT whole"),
        "{said}"
    );
    let kept: Vec<&str> = whole.lines().take(4).collect();
    fs::write(&file, format!("{}\n", kept.join("\n"))).unwrap();
    let verdict = verdict(&home);
    assert_eq!(verdict["faults"][0]["kind"], "truncated", "{verdict}");
    assert_eq!(verdict["faults"][0]["from_seq"], 4);
}

#[test]
fn a_log_that_cannot_be_written_stops_operations_until_it_can_be() {
    let home = Home::new();
    let audit_directory = support::scratch();
    let path = audit_directory.path().join("audit");
    let directory = path.to_str().unwrap();
    let arguments = [
        "--drain-grace-s",
        "0",
        "--warm",
        "0",
        "--audit-dir",
        directory,
        "--audit-segment-bytes",
        "4k",
    ];
    let mut server = home.serve_with(&arguments);
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    // Without its directory no segment can be begun.
    let away = audit_directory.path().join("away");
    fs::rename(&path, &away).unwrap();
    let is_refused = |client: &mut Client| {
        let write = json!({ "container_id": "nobody", "path": "a", "content": "" });
        client.refused("fs_write", write) == "unavailable"
    };
    until(|| is_refused(&mut client));
    server.wait_for("the audit log cannot be written");
    assert_eq!(ready(&server.url), 503);
    client.ok("list_containers", json!({}));
    // What runs can be ended, and is recorded when that is possible again.
    client.ok("kill", json!({ "container_id": id }));
    fs::rename(&away, &path).unwrap();
    until(|| !is_refused(&mut client));
    assert_eq!(ready(&server.url), 200);
    assert!(server.terminate().success());
    let output = audit(&home, &["verify", "--audit-dir", directory]);
    assert!(output.status.success(), "{output:?}");
    let kill = query(
        &home,
        &["--audit-dir", directory, "--event", "CONTAINER_KILL"],
    );
    assert_eq!((kill.len(), &kill[0]["target"]), (1, &id), "{kill:?}");
}

fn ready(url: &str) -> u16 {
    let mut http = Http::connect(url);
    http.get("/readyz", &[]);
    http.status
}

fn until(mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + support::deadline();
    while !is_true() {
        assert!(Instant::now() < deadline, "it never came");
    }
}
