//! How much callers may ask for, told by the real binary.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

/// What a refused call says, as the model reads it.
fn refusal(client: &mut Client, arguments: Value) -> Value {
    let answer = client.call("spawn", arguments);
    assert_eq!(answer["isError"], true, "{answer}");
    answer["structuredContent"].clone()
}

#[test]
fn a_default_that_the_operator_set_is_the_ceiling() {
    let home = Home::new();
    let server = home.serve_with(&["--memory=64m", "--pids=64", "--cpus=0.5", "--warm=0"]);
    let mut client = server.client();
    let told = refusal(&mut client, json!({ "memory": "16t" }));
    assert_eq!(
        told,
        json!({
            "code": "denied",
            "message": "memory 16 TiB is more than the 64 MiB that a container may have here (rule `memory_max`)",
            "hint": "ask for less memory, or ask the operator to raise --memory-max",
        })
    );
    let told = refusal(&mut client, json!({ "cpus": 4096 }));
    assert!(told["message"].as_str().unwrap().contains("`cpus_max`"));
    let told = refusal(&mut client, json!({ "pids": 4_194_304 }));
    assert!(told["message"].as_str().unwrap().contains("`pids_max`"));
    // As much as there is may be asked for, and less.
    let most = json!({ "memory": "64m", "cpus": 0.5, "pids": 64 });
    let made = client.ok("spawn", most);
    client.ok("kill", json!({ "container_id": made["container_id"] }));
    let less = client.ok("spawn", json!({ "memory": "32m" }));
    client.ok("kill", json!({ "container_id": less["container_id"] }));
    assert!(server.terminate().success());
}

#[test]
fn where_nothing_is_set_no_container_can_be_larger_than_half_the_host() {
    let home = Home::new();
    let server = home.serve_with(&["--warm=0"]);
    let mut client = server.client();
    for (arguments, rule) in [
        (json!({ "memory": "16t" }), "memory_max"),
        (json!({ "cpus": 4096 }), "cpus_max"),
        (json!({ "pids": 4_194_304 }), "pids_max"),
    ] {
        let told = refusal(&mut client, arguments);
        assert_eq!(told["code"], "denied", "{told}");
        assert!(told["message"].as_str().unwrap().contains(rule), "{told}");
    }
    let status = Client::socket(&home).ok("system_status", json!({}));
    let memory = status["maxima"]["memory_bytes"].as_u64().unwrap();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(memory <= (kib << 9).max(512 << 20), "{status}");
    assert_eq!(status["maxima"]["pids"], 4096, "{status}");
    assert!(server.terminate().success());
}

#[test]
fn all_containers_together_have_no_more_than_the_total_also_after_a_restart() {
    let home = Home::new();
    let arguments = [
        "--memory=64m",
        "--pids=64",
        "--memory-total=200m",
        "--warm=1",
    ];
    let server = home.serve_with(&arguments);
    let mut client = server.client();
    let mut made = Vec::new();
    for _ in 0..3 {
        let container = client.ok("spawn", json!({ "persistent": true }));
        made.push(container["container_id"].clone());
    }
    let told = refusal(&mut client, json!({}));
    assert_eq!(
        told,
        json!({
            "code": "denied",
            "message": "memory 64 MiB is more than is free of the 200 MiB that all containers may have together (rule `memory_total`)",
            "hint": "kill a container that is not needed, ask for less memory, or ask the operator to raise --memory-total",
        })
    );
    server.kill();

    let server = home.serve_with(&arguments);
    let mut client = server.client();
    let status = Client::socket(&home).ok("system_status", json!({}));
    let totals = &status["totals"];
    assert_eq!(totals["memory_bytes"], 200 << 20, "{status}");
    assert_eq!(totals["memory_bytes_held"], 192 << 20, "{status}");
    assert_eq!(totals["pids_held"], 192, "{status}");
    assert_eq!(refusal(&mut client, json!({}))["code"], "denied");
    client.ok("kill", json!({ "container_id": made.pop() }));
    made.push(client.ok("spawn", json!({}))["container_id"].clone());
    for id in made {
        client.ok("kill", json!({ "container_id": id }));
    }
    assert!(server.terminate().success());
}

#[test]
fn a_default_above_its_ceiling_is_refused_before_anything_is_served() {
    let home = Home::new();
    let refused = home.run(&[
        "serve",
        "--memory",
        "1g",
        "--memory-max",
        "512m",
        "--port",
        "0",
    ]);
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        told.contains("--memory 1 GiB is above --memory-max 512 MiB"),
        "{told}"
    );
}
