//! Containers of images from a registry, as a client of the real server sees them.

use std::sync::Arc;

use hotcell_testkit::image::{Made, digest, image, image_for, layer};
use hotcell_testkit::registry::{self, Answer, Canned, not_found};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::support::mcp::Client;
use crate::support::{self, home::Home};

/// An image whose shell is Debian's static busybox.
fn shell() -> Made {
    let program = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    image(&[layer(&[("bin/sh", &program)])])
}

fn runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

fn serve(home: &Home, registries: &[&Canned], arguments: &[&str]) -> Client {
    let hosts: Vec<_> = registries.iter().map(|one| one.host.as_str()).collect();
    let hosts = hosts.join(",");
    let mut all = vec!["--engine", "embedded", "--allowed-registries", &hosts];
    all.extend(arguments);
    Client::stdio(home, &all)
}

/// What a script says in a container.
fn said(client: &mut Client, container: &Value, script: &str, env: &Value) -> String {
    let command = json!({
        "container_id": container["container_id"], "cmd": ["sh", "-c", script],
        "wait_s": 20, "env": env,
    });
    let ran = client.ok("exec_start", command);
    assert_eq!(ran["status"], "succeeded", "{ran}");
    let messages = ran["messages"].as_array().expect("messages").iter();
    messages
        .filter_map(|message| message["data"].as_str())
        .collect()
}

fn blobs_asked(registry: &Canned, blob: &[u8]) -> usize {
    let path = format!("/v2/x/blobs/{}", digest(blob));
    let asked = registry.asked();
    asked.iter().filter(|(asked, _)| *asked == path).count()
}

#[test]
fn a_spawn_that_pulls_tells_how_far_it_is_and_two_share_one_pull() {
    let (home, runtime, made) = (Home::new(), runtime(), shell());
    let blob = made.layers[0].blob.clone();
    let rest = Arc::new(Notify::new());
    let held = Answer::Held(blob.clone(), blob.len() - 1, Arc::clone(&rest));
    let path = format!("/v2/x/blobs/{}", digest(&blob));
    let registry = runtime.block_on(Canned::serving(&made, vec![(path, held)]));
    let mut client = serve(&home, &[&registry], &[]);
    let name = format!("{}/x:latest", registry.host);

    let mut spawn = |token: &str, env: &Value| {
        let arguments = json!({ "image": name, "env": env });
        let params = json!({
            "name": "spawn", "arguments": arguments, "_meta": { "progressToken": token },
        });
        client.send("tools/call", params)
    };
    let first = spawn("first", &json!({}));
    let second = spawn("second", &json!({ "MADE": "by spawn" }));
    let far = format!("pulling {name}: ");
    for token in ["first", "second"] {
        client.wait_for_notification(|params| {
            let message = params["message"].as_str().unwrap_or_default();
            let is_far = message.starts_with(&far) && message.contains(" of ");
            params["progressToken"] == token && is_far
        });
    }
    rest.notify_waiters();
    let [first, second] = [first, second].map(|id| {
        let answer = client.answer(id).expect("an answer");
        assert_ne!(answer["isError"], true, "{answer}");
        answer["structuredContent"].clone()
    });
    assert_eq!(blobs_asked(&registry, &blob), 1);
    let pinned = digest(&made.manifest).to_string();
    for container in [&first, &second] {
        assert_eq!(container["image_digest"], pinned.as_str(), "{container}");
    }

    // The image's variables, over them spawn's, over them the exec's. Its user, directory
    // and entry point have no effect.
    let script = "echo $PATH $MADE $HOME $LANG; pwd";
    let wanted = "/opt/bin:/bin by a test /workspace C.UTF-8\n/workspace\n";
    assert_eq!(said(&mut client, &first, script, &json!({})), wanted);
    let script = "echo $MADE";
    assert_eq!(said(&mut client, &second, script, &json!({})), "by spawn\n");
    let env = json!({ "MADE": "by exec" });
    assert_eq!(said(&mut client, &second, script, &env), "by exec\n");

    client.ok("kill", json!({ "container_id": first["container_id"] }));
    client.ok("kill", json!({ "container_id": second["container_id"] }));
    assert!(client.hang_up().success());
    // Another server, and the container is gone: the digest is remembered.
    let mut client = serve(&home, &[&registry], &[]);
    let all = client.ok("list_containers", json!({ "include_stopped": true }));
    assert_eq!(all["containers"][0]["image_digest"], pinned.as_str());
    assert!(client.hang_up().success());
}

#[test]
fn a_spawn_that_is_cancelled_stops_its_pull_and_the_next_continues_it() {
    let (home, runtime, made) = (Home::new(), runtime(), shell());
    let registry = runtime.block_on(Canned::stalling_once(&made));
    let mut client = serve(&home, &[&registry], &[]);
    let image = format!("{}/x", registry.host);
    let params = json!({
        "name": "spawn", "arguments": { "image": image }, "_meta": { "progressToken": 1 },
    });
    let id = client.send("tools/call", params);
    client.wait_for_notification(|params| {
        let message = params["message"].as_str().unwrap_or_default();
        message.contains(" of ")
    });
    client.cancel(id);
    // If it went on, it would ask the registry once more, and be made.
    support::wait_until("the pull is stopped", || {
        let all = client.ok("list_containers", json!({ "include_stopped": true }));
        all["containers"][0]["status"] == "failed"
    });
    let container = client.ok("spawn", json!({ "image": image }));
    let asked = registry.asked();
    assert!(
        asked
            .iter()
            .any(|(_, headers)| headers.contains("range: bytes="))
    );
    let all = client.ok("list_containers", json!({}));
    assert_eq!(all["containers"].as_array().map(Vec::len), Some(1), "{all}");
    client.ok("kill", json!({ "container_id": container["container_id"] }));
    assert!(client.hang_up().success());
}

#[test]
fn an_image_that_cannot_be_had_is_told_by_a_code_and_leaves_nothing() {
    let (home, runtime) = (Home::new(), runtime());
    let made = shell();
    let blob = made.layers[0].blob.clone();
    let blob_path = format!("/v2/x/blobs/{}", digest(&blob));
    let serving = |made: &Made, changes| runtime.block_on(Canned::serving(made, changes));
    let empty = runtime.block_on(Canned::start(|_| not_found()));
    let mut damaged = blob.clone();
    damaged[100] ^= 1;
    let wrong = serving(&made, vec![(blob_path.clone(), Answer::Body(damaged))]);
    let foreign = serving(&image_for(&made.layers, "riscv64"), Vec::new());
    let forbidden = runtime.block_on(Canned::start(|_| registry::status("403 Forbidden", "")));
    let away = runtime.block_on(Canned::start(|_| registry::status("503 Away", "")));
    let all = [&empty, &wrong, &foreign, &forbidden, &away];
    let mut client = serve(&home, &all, &["--warm", "0"]);
    for (registry, code, words) in [
        (&empty, "not_found", "there is no image"),
        (&wrong, "invalid_argument", "a layer should be sha256:"),
        (&foreign, "invalid_argument", "riscv64"),
        (&forbidden, "denied", "denies access"),
        (&away, "unavailable", "status 503"),
    ] {
        let answer = client.call("spawn", json!({ "image": format!("{}/x", registry.host) }));
        let content = &answer["structuredContent"];
        assert_eq!(content["code"], code, "{answer}");
        let message = content["message"].as_str().expect("a sentence");
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(
        client.refused("spawn", json!({ "image": "localhost/x" })),
        "not_found"
    );
    let left = client.ok("list_containers", json!({}));
    assert_eq!(left["containers"], json!([]));
    for directory in ["refs", "images", "layers", "blobs", "new"] {
        let entries = std::fs::read_dir(home.path().join("images").join(directory));
        assert_eq!(entries.expect("it is there").count(), 0, "{directory}");
    }
    assert!(client.hang_up().success());
    home.assert_empty(&[]);
}

#[test]
fn an_image_without_a_shell_makes_a_container_in_which_files_work() {
    let (home, runtime) = (Home::new(), runtime());
    let made = image(&[layer(&[("etc/motd", b"hello")])]);
    let registry = runtime.block_on(Canned::serving(&made, Vec::new()));
    let mut client = serve(&home, &[&registry], &[]);
    let image = format!("{}/x", registry.host);
    let container = client.ok("spawn", json!({ "image": image }));
    let id = &container["container_id"];
    let start = json!({ "container_id": id, "cmd": ["sh"], "wait_s": 20 });
    let ran = client.ok("exec_start", start);
    assert_eq!(ran["status"], "failed", "{ran}");
    let reason = ran["reason"].as_str().expect("a reason");
    assert!(reason.contains("no program `sh`"), "{ran}");
    let file = json!({ "container_id": id, "path": "a", "content": "b" });
    client.ok("fs_write", file);
    client.ok("kill", json!({ "container_id": id }));
    assert!(client.hang_up().success());
}

#[test]
fn each_refusal_names_its_rule_to_the_caller_and_is_one_event() {
    let (home, runtime) = (Home::new(), runtime());
    let registry = runtime.block_on(Canned::start(|_| not_found()));
    let host = registry.host.clone();
    let glob = format!("{host}/ok/*");
    let pinned = format!("@sha256:{}", "a".repeat(64));
    let policy = [
        "--allowed-images",
        &glob,
        "--require-digest",
        "--local-images",
        "false",
    ];
    let mut client = serve(&home, &[&registry], &policy);
    let refused = [
        (
            json!({ "image": format!("quay.io/a/b{pinned}") }),
            "allowed_registries",
        ),
        (
            json!({ "image": format!("{host}/no/x{pinned}") }),
            "allowed_images",
        ),
        (json!({ "image": format!("{host}/ok/x") }), "require_digest"),
        (
            json!({ "image": format!("localhost/x{pinned}") }),
            "local_images",
        ),
        (json!({ "image": "rootfs:/srv" }), "allow_rootfs"),
        (json!({ "network": "full" }), "allow_network"),
    ];
    for (mut arguments, rule) in refused {
        arguments["env"] = json!({ "TOKEN": "hunter2" });
        let answer = client.call("spawn", arguments);
        let content = &answer["structuredContent"];
        assert_eq!(content["code"], "denied", "{answer}");
        let message = content["message"].as_str().expect("a sentence");
        assert!(message.contains(&format!("rule `{rule}`")), "{message}");
        let hint = content["hint"].as_str().expect("a hint");
        assert!(hint.contains("leave"), "{hint}");
    }
    // What is allowed is asked for, and the registry does not have it.
    let allowed = json!({ "image": format!("{host}/ok/x{pinned}") });
    assert_eq!(client.refused("spawn", allowed), "not_found");
    let log = client.log_until("an image cannot be had");
    for rule in [
        "allowed_registries",
        "allowed_images",
        "require_digest",
        "local_images",
        "allow_rootfs",
        "allow_network",
    ] {
        let event = format!("rule=\"{rule}\" principal=local");
        let events = log.iter().filter(|line| line.contains(&event)).count();
        assert_eq!(events, 1, "{rule}: {log:#?}");
    }
    assert!(!log.iter().any(|line| line.contains("hunter2")), "{log:#?}");
    assert!(
        registry
            .asked()
            .iter()
            .all(|(path, _)| path.starts_with("/v2/ok/"))
    );
    assert!(client.hang_up().success());
}
