//! The warm pool of the real server on the embedded engine: what is ready is handed out, what
//! is dead is not, and nothing is left whatever becomes of the server.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::time::Duration;

use hotcell_domain::ContainerId;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::mcp::Client;
use crate::support::server::{Server, send};
use crate::support::wait_until;
use crate::support::{self, home::Home};

/// Serves with so many containers kept ready, and waits until they are.
fn serve_warm(home: &Home, count: u64, arguments: &[&str]) -> Server {
    let count_text = count.to_string();
    let mut all = vec!["--warm", count_text.as_str(), "--drain-grace-s", "0"];
    all.extend(arguments);
    let server = home.serve_with(&all);
    until_ready(&mut server.client(), count);
    server
}

/// The only warm set.
fn stock(client: &mut Client) -> Value {
    client.ok("system_status", json!({}))["warm"][0].clone()
}

fn until_ready(client: &mut Client, count: u64) {
    wait_until("so many are ready", || stock(client)["ready"] == count);
}

/// The agent of a container, as the host sees it.
fn agent_of(id: &ContainerId) -> u32 {
    let is_agent = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.starts_with("hotcell-agent\0init\0") && line.contains(id.as_str())
    };
    support::pids().into_iter().find(is_agent).unwrap()
}

#[test]
fn a_container_is_there_before_it_is_asked_for() {
    let home = Home::operated();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    until_ready(&mut client, 1);
    let ready = home.containers();
    let spawn = json!({ "alias": "cell", "env": { "GREETING": "hello" } });
    let spawned = client.ok("spawn", spawn);
    assert_eq!(spawned["warm"], true, "{spawned}");
    assert_eq!(spawned["container_id"], ready[0].as_str());
    let run = json!({ "container_id": "cell", "cmd": ["sh", "-c", "touch f && echo $GREETING $(id -u)"], "wait_s": 30 });
    let ran = client.ok("exec_start", run);
    assert_eq!(ran["messages"][0]["data"], "hello 1000\n", "{ran}");
    until_ready(&mut client, 1);
    assert_eq!(home.containers().len(), 2);
    let listed = client.ok("list_containers", json!({}));
    assert_eq!(listed["containers"].as_array().unwrap().len(), 1);
    let expected = json!({
        "image": "host", "memory_bytes": 512 << 20, "cpus": 1.0, "pids": 256,
        "wanted": 1, "ready": 1, "hits": 1, "misses": 0,
    });
    assert_eq!(stock(&mut client), expected);
    let next = client.ok("spawn", json!({}));
    assert_eq!(next["warm"], true, "{next}");
    let list = json!({ "container_id": next["container_id"], "path": "." });
    assert_eq!(
        client.ok("fs_list", list)["entries"],
        json!([]),
        "it is untouched"
    );
    let small = client.ok("spawn", json!({ "memory": "64m" }));
    assert_eq!(small["warm"], false, "other limits are another container");
    assert_eq!(stock(&mut client)["misses"], 0);
    assert!(server.terminate().success());
    assert_eq!(home.containers(), []);
}

#[test]
fn without_a_pool_there_is_none() {
    let home = Home::operated();
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let mut client = server.client();
    assert_eq!(client.ok("system_status", json!({}))["warm"], json!([]));
    assert_eq!(client.ok("spawn", json!({}))["warm"], false);
    assert_eq!(home.containers().len(), 1);
    assert!(server.terminate().success());
}

#[test]
fn a_container_that_died_or_hangs_is_replaced_and_never_handed_out() {
    let home = Home::operated();
    let server = serve_warm(&home, 1, &["--warm-check-s", "1"]);
    let mut client = server.client();
    for signal in [Signal::KILL, Signal::STOP] {
        let bad = home.containers()[0].clone();
        send(agent_of(&bad), signal);
        wait_until("another is ready", || {
            stock(&mut client)["ready"] == 1 && !home.containers().contains(&bad)
        });
    }
    let hung = home.containers()[0].clone();
    send(agent_of(&hung), Signal::STOP);
    let spawned = client.ok("spawn", json!({}));
    assert_ne!(spawned["container_id"], hung.as_str());
    let run = json!({ "container_id": spawned["container_id"], "cmd": ["true"], "wait_s": 30 });
    assert_eq!(client.ok("exec_start", run)["exit_code"], 0);
    assert!(server.terminate().success());
}

#[test]
fn a_killed_server_leaves_each_container_with_its_owner_or_in_the_pool() {
    let home = Home::operated();
    for seed in 0..8_u64 {
        let server = serve_warm(&home, 2, &[]);
        let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let key = json!({ "idempotency_key": format!("{seed}-{number}") });
            client.send("tools/call", json!({ "name": "spawn", "arguments": key }));
        }
        // A moment that is not known before is the point here: there is no event to wait for.
        std::thread::sleep(Duration::from_micros(seed * 1500));
        server.kill();

        let server = serve_warm(&home, 2, &[]);
        let mut client = server.client();
        let settled = client.ok("reconcile", json!({}));
        assert_eq!(settled["adopted"], 0, "seed {seed}: {settled}");
        let listed = client.ok("list_containers", json!({}));
        let listed = listed["containers"].as_array().unwrap().clone();
        for container in &listed {
            let id = &container["container_id"];
            assert_eq!(container["status"], "running", "seed {seed}: {container}");
            client.ok("fs_list", json!({ "container_id": id, "path": "." }));
        }
        wait_until("all others are the pool's", || {
            home.containers().len() == listed.len() + 2
        });
        assert!(server.terminate().success());
        assert_eq!(home.containers(), [], "seed {seed}");
    }
}

#[test]
fn a_pool_that_a_killed_server_left_is_removed_by_the_next() {
    let home = Home::operated();
    let server = serve_warm(&home, 3, &[]);
    let left = home.containers();
    server.kill();
    let server = serve_warm(&home, 3, &[]);
    let spawned = server.client().ok("spawn", json!({}));
    assert!(
        !left
            .iter()
            .any(|id| *id.as_str() == spawned["container_id"])
    );
    wait_until("nothing that another server made is left", || {
        let held = home.containers();
        !left.iter().any(|id| held.contains(id))
    });
    server.kill();
    let server = home.serve_with(&["--warm", "0", "--drain-grace-s", "0"]);
    wait_until("only the one that is somebody's is left", || {
        home.containers().len() == 1
    });
    assert_eq!(spawned["container_id"], home.containers()[0].as_str());
    assert!(server.terminate().success());
}

/// Tags an image that prints this word with the name.
fn tag(home: &Home, word: &str) {
    let file = support::image::archive_saying(home.path(), word);
    let pulled = home.run(&["pull", "--from", file.to_str().unwrap()]);
    assert!(pulled.status.success(), "{pulled:?}");
}

/// The digest of a new container of the image, whether it was ready, and what its image says.
fn spawn_of_image(client: &mut Client) -> (String, bool, String) {
    let made = client.ok("spawn", json!({ "image": support::image::NAME }));
    let script = json!({ "container_id": made["container_id"],
        "cmd": ["sh", "-c", "echo $FROM_IMAGE"], "wait_s": 30 });
    let said = client.ok("exec_start", script)["messages"][0]["data"].clone();
    (
        made["image_digest"].as_str().unwrap().to_owned(),
        made["warm"].as_bool().unwrap(),
        said.as_str().unwrap().to_owned(),
    )
}

#[test]
fn a_tag_that_moves_takes_the_pool_with_it() {
    let home = Home::operated();
    tag(&home, "one");
    let stocks = format!("{}=2", support::image::NAME);
    let arguments = ["--warm", "0", "--warm-image", &stocks];
    let server = home.serve_with(&[&arguments[..], &["--drain-grace-s", "0"]].concat());
    let mut client = server.client();
    until_ready(&mut client, 2);
    let (one, is_warm, said) = spawn_of_image(&mut client);
    assert_eq!((is_warm, said.as_str()), (true, "one\n"));
    until_ready(&mut client, 2);
    tag(&home, "two");
    let (two, is_warm, said) = spawn_of_image(&mut client);
    assert_eq!((is_warm, said.as_str()), (false, "two\n"));
    assert_ne!(one, two);
    until_ready(&mut client, 2);
    let again = spawn_of_image(&mut client);
    assert_eq!(again, (two, true, "two\n".to_owned()));
    let stock = stock(&mut client);
    assert_eq!((&stock["hits"], &stock["misses"]), (&json!(2), &json!(1)));
    assert!(server.terminate().success());
    assert_eq!(home.containers(), []);
}

#[test]
fn an_image_that_cannot_be_had_keeps_nobody_from_being_served() {
    let home = Home::operated();
    let server = home.serve_with(&["--warm-image", "localhost/none=2", "--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok("spawn", json!({}));
    let warm = client.ok("system_status", json!({}))["warm"].clone();
    assert_eq!(
        (&warm[0]["wanted"], &warm[0]["ready"]),
        (&json!(2), &json!(0))
    );
    assert!(server.terminate().success());
}

#[test]
fn an_image_that_policy_refuses_is_named_at_the_start() {
    let home = Home::operated();
    let output = home.run(&["serve", "--port", "0", "--warm-image", "quay.io/a/b=1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("quay.io/a/b:latest cannot be kept warm"),
        "{said}"
    );
    assert!(said.contains("allowed_registries"), "{said}");
}
