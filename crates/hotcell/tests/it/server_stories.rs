//! Stories of the server, told by the real binary: an agent comes, works and goes, over each
//! transport; operators start and stop it.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::server;
use crate::support::{self, home::Home};

/// Typical work of an AI agent. Leaves nothing behind.
fn work(client: &mut Client) {
    let container = client.ok("spawn", json!({ "alias": "story" }));
    let id = container["container_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&container["status"], &container["image"]),
        (&json!("running"), &json!("host"))
    );
    client.ok(
        "fs_write",
        json!({ "container_id": id, "path": "src/main.py", "content": "print(6 * 7)\n" }),
    );
    let ran = client.ok(
        "exec_start",
        json!({ "container_id": "story", "cmd": ["python3", "src/main.py"], "wait_s": 30 }),
    );
    assert_eq!(
        (text(&ran, "stdout").as_str(), &ran["exit_code"]),
        ("42\n", &json!(0)),
        "{ran}"
    );
    assert_eq!(
        (&ran["status"], &ran["complete"]),
        (&json!("succeeded"), &json!(true))
    );
    let read = client.ok(
        "fs_read",
        json!({ "container_id": id, "path": "/workspace/src/main.py" }),
    );
    assert_eq!(read["content"], "print(6 * 7)\n");
    assert!(aliases(client).contains(&"story".to_owned()));
    client.ok("kill", json!({ "container_id": id }));
    assert_eq!(
        client.refused("kill", json!({ "container_id": id })),
        "not_found"
    );
    assert!(!aliases(client).contains(&"story".to_owned()));
}

fn aliases(client: &mut Client) -> Vec<String> {
    let listed = client.ok("list_containers", json!({}));
    let containers = listed["containers"].as_array().unwrap().iter();
    let alias = |container: &Value| Some(container["alias"].as_str()?.to_owned());
    containers.filter_map(alias).collect()
}

/// What one stream's messages say together.
fn text(polled: &Value, stream: &str) -> String {
    let messages = polled["messages"].as_array().unwrap();
    let of = messages
        .iter()
        .filter(|message| message["stream"] == stream);
    of.map(|message| message["data"].as_str().unwrap())
        .collect()
}

#[test]
fn an_agent_works_over_stdio() {
    let home = Home::new();
    let mut client = Client::stdio(&home, &[]);
    work(&mut client);
    assert!(client.hang_up().success());
}

#[test]
fn an_agent_works_over_http_with_a_session() {
    let home = Home::new();
    let server = home.serve();
    let mut client = server.client();
    assert!(client.session().is_some());
    work(&mut client);
    assert!(server.terminate().success());
}

#[test]
fn an_agent_works_over_http_without_a_session() {
    let home = Home::new();
    let server = home.serve();
    let mut client = Client::stateless(&server.url);
    work(&mut client);
    assert!(client.session().is_none());
    assert!(server.terminate().success());
}

#[test]
fn the_operator_chooses_the_limits_of_a_container_that_names_none() {
    let home = Home::new();
    let limits = ["--memory=64m", "--cpus=0.5", "--pids=32", "--tmp=16m"];
    let server = home.serve_with(&limits);
    let mut client = Client::socket(&home);
    let profile = client.ok("system_status", json!({}))["profile"].clone();
    assert_eq!(profile["image"], "host");
    assert_eq!(
        (&profile["memory_bytes"], &profile["cpus"]),
        (&json!(64 << 20), &json!(0.5))
    );
    assert_eq!(
        (&profile["pids"], &profile["tmp_bytes"]),
        (&json!(32), &json!(16 << 20))
    );
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let listed = client.ok("list_containers", json!({}));
    assert_eq!(listed["containers"][0]["memory"]["limit_bytes"], 64 << 20);
    client.ok("kill", json!({ "container_id": id }));
    drop(client);
    assert!(server.terminate().success());
}

#[test]
fn an_agent_works_over_the_socket() {
    let home = Home::new();
    let server = home.serve();
    work(&mut Client::socket(&home));
    assert!(server.terminate().success());
}

#[test]
fn all_transports_see_one_state() {
    let home = Home::new();
    let server = home.serve();
    let made = server.client().ok("spawn", json!({ "alias": "shared" }));
    for client in [
        &mut Client::socket(&home),
        &mut Client::stateless(&server.url),
    ] {
        let listed = client.ok("list_containers", json!({}));
        assert_eq!(
            listed["containers"][0]["container_id"],
            made["container_id"]
        );
    }
    server
        .client()
        .ok("kill", json!({ "container_id": "shared" }));
    assert!(server.terminate().success());
}

#[test]
fn a_second_stdio_server_shares_the_state_of_the_first() {
    let home = Home::new();
    let mut first = Client::stdio(&home, &[]);
    let mut second = Client::stdio(&home, &[]);
    let made = first.ok("spawn", json!({ "alias": "ours" }));
    let listed = second.ok("list_containers", json!({}));
    assert_eq!(
        listed["containers"][0]["container_id"],
        made["container_id"]
    );
    work(&mut second);
    second.ok("kill", json!({ "container_id": "ours" }));
    assert!(second.hang_up().success());
    assert!(first.hang_up().success());
}

#[test]
fn the_first_stdio_server_stays_for_those_who_share_it() {
    let home = Home::new();
    let mut first = Client::stdio(&home, &[]);
    let mut second = Client::stdio(&home, &[]);
    first.ok("list_containers", json!({}));
    let leaving = std::thread::spawn(move || first.hang_up());
    work(&mut second);
    assert!(!leaving.is_finished());
    assert!(second.hang_up().success());
    assert!(leaving.join().unwrap().success());
}

#[test]
fn a_second_http_server_is_refused_and_told_who_has_the_state() {
    let home = Home::new();
    let server = home.serve();
    let output = home.run(&["serve", "--port", "0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let pid = server.pid().to_string();
    assert!(
        said.contains("another Hotcell server") && said.contains(&pid),
        "{said}"
    );
    assert!(server.terminate().success());
}

#[test]
fn a_port_in_use_is_named() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = home.run(&["serve", "--port", &port]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("port {port}")) && said.contains("--port"),
        "{said}"
    );
}

#[test]
fn an_address_that_others_can_reach_needs_a_word() {
    let home = Home::new();
    let output = home
        .command(&["serve", "--port", "0", "--host", "0.0.0.0"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--allow-anonymous"), "{said}");
    let server = home.serve_with(&["--host", "0.0.0.0", "--allow-anonymous"]);
    assert!(server.terminate().success());
}

#[test]
fn settings_come_from_the_environment_too() {
    let home = Home::new();
    let mut command = home.command(&["serve", "--port", "0"]);
    let output = command.env("HOTCELL_HOST", "0.0.0.0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--allow-anonymous"));
}

#[test]
fn operators_see_health_readiness_and_metrics() {
    let home = Home::operated();
    let server = home.serve();
    let mut client = server.client();
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let run = json!({ "container_id": id, "cmd": ["true"], "wait_s": 30 });
    client.ok("exec_start", run);
    let mut http = Http::connect(&server.url);
    for path in ["/healthz", "/readyz"] {
        http.get(path, &[]);
        assert_eq!(http.status, 200, "{path}");
        http.read_whole();
    }
    http.get("/metrics", &[]);
    let metrics = String::from_utf8(http.read_whole()).unwrap();
    for name in [
        "mcp_devbench_container_spawns_total",
        "mcp_devbench_exec_total",
        "mcp_devbench_exec_duration_seconds",
        "mcp_devbench_active_containers",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
}

#[test]
fn nobody_is_the_operator_by_coming_from_this_machine() {
    let home = Home::new();
    let server = home.serve();
    for mut client in [server.client(), Client::stateless(&server.url)] {
        let tools = client.request("tools/list", json!({})).unwrap();
        let tools = tools["tools"].to_string();
        assert!(tools.contains("exec_start") && !tools.contains("system_status"));
        let answer = client.call("reconcile", json!({}));
        let denied = &answer["structuredContent"];
        assert_eq!(denied["code"], "denied", "{answer}");
        assert!(denied["hint"].to_string().contains("--admin-over-http"));
    }
    let mut http = Http::connect(&server.url);
    http.get("/metrics", &[]);
    assert_eq!(http.status, 403);
    let body = String::from_utf8(http.read_whole()).unwrap();
    assert!(body.contains("--admin-over-http"), "{body}");
    // Its own user, by the socket, is.
    Client::socket(&home).ok("system_status", json!({}));
    assert!(server.terminate().success());
}

#[test]
fn probes_ask_for_health_by_whatever_name_they_have() {
    let home = Home::new();
    let server = home.serve();
    for path in ["/healthz", "/readyz"] {
        let mut http = Http::connect(&server.url);
        http.get(path, &[("Host", "10.1.2.3:9999".to_owned())]);
        assert_eq!(http.status, 200, "{path}");
        let mut http = Http::connect(&server.url);
        http.get(path, &[("Origin", "http://evil.example".to_owned())]);
        assert_eq!(http.status, 403, "{path}");
    }
    assert!(server.terminate().success());
}

#[test]
fn a_foreign_origin_or_host_is_forbidden() {
    let home = Home::new();
    let server = home.serve();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Host", "evil.example"),
    ] {
        let mut http = Http::connect(&server.url);
        http.post("/mcp", &[(name, value.to_owned())], &ping);
        assert_eq!(http.status, 403, "{name}: {value}");
        let mut http = Http::connect(&server.url);
        http.get("/v1/containers/x/archive", &[(name, value.to_owned())]);
        assert_eq!(http.status, 403, "{name}: {value} at /v1");
    }
    assert!(server.terminate().success());
}

#[test]
fn stopping_ends_transient_containers_and_keeps_persistent_ones() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let transient = client.ok("spawn", json!({ "alias": "transient" }));
    client.ok(
        "spawn",
        json!({ "alias": "persistent", "persistent": true }),
    );
    client.ok(
        "fs_write",
        json!({ "container_id": "persistent", "path": "note", "content": "here" }),
    );
    assert!(server.terminate().success());
    assert_eq!(home.containers().len(), 1);

    let server = home.serve();
    let mut client = server.client();
    let gone = json!({ "container_id": transient["container_id"], "path": "." });
    assert_eq!(client.refused("fs_list", gone), "not_found");
    let read = json!({ "container_id": "persistent", "path": "note" });
    assert_eq!(client.ok("fs_read", read)["content"], "here");
    client.ok("kill", json!({ "container_id": "persistent" }));
    assert!(server.terminate().success());
}

/// Waits until `/readyz` reports that the server is not ready.
fn until_not_ready(url: &str) {
    let mut http = Http::connect(url);
    support::wait_until("it is not ready", || {
        http.get("/readyz", &[]);
        http.read_whole();
        http.status == 503
    });
}

#[test]
fn stopping_lets_execs_end_within_the_grace() {
    let home = Home::new();
    let mut server = home.serve_with(&["--drain-grace-s", "60"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "p", "persistent": true }));
    let script = "until [ -e go ]; do sleep 0.01; done; echo finished";
    let run = json!({ "container_id": "p", "cmd": ["sh", "-c", script] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    server.signal(Signal::TERM);
    server.wait_for("stopping");
    until_not_ready(&server.url);
    // What is under way is served; nothing new is begun.
    let go = json!({ "container_id": "p", "path": "go", "content": "" });
    assert_eq!(
        client.refused(
            "exec_start",
            json!({ "container_id": "p", "cmd": ["true"] })
        ),
        "unavailable"
    );
    client.ok("fs_write", go);
    assert!(server.wait().success());

    let server = home.serve();
    let polled = server.client().ok("exec_poll", json!({ "exec_id": exec }));
    assert_eq!(
        (text(&polled, "stdout").as_str(), &polled["status"]),
        ("finished\n", &json!("succeeded"))
    );
    server.client().ok("kill", json!({ "container_id": "p" }));
    assert!(server.terminate().success());
}

#[test]
fn a_second_signal_quits_at_once_and_the_next_server_finds_everything() {
    let home = Home::new();
    // Longer than anybody waits here for its end.
    let mut server = home.serve_with(&["--drain-grace-s", "3600"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "t" }));
    let run = json!({ "container_id": "t", "cmd": ["sh", "-c", "until [ -e go ]; do sleep 0.01; done; echo done"] });
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    server.signal(Signal::TERM);
    server.wait_for("stopping");
    server.signal(Signal::INT);
    assert!(!server.wait().success());

    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok(
        "fs_write",
        json!({ "container_id": "t", "path": "go", "content": "" }),
    );
    let polled = client.ok("exec_poll", json!({ "exec_id": exec, "wait_s": 30 }));
    assert_eq!(text(&polled, "stdout"), "done\n");
    assert!(server.terminate().success());
}

#[test]
fn a_client_that_is_gone_and_then_signals_is_not_kept_waiting_by_its_execs() {
    let home = Home::new();
    let mut client = Client::stdio(&home, &["--drain-grace-s", "600"]);
    client.ok("spawn", json!({ "alias": "cell" }));
    let run = json!({ "container_id": "cell", "cmd": ["sleep", "1000"] });
    client.ok("exec_start", run);
    client.close();
    client.wait_for_log("a signal shortens it");
    client.signal(Signal::TERM);
    assert!(client.hang_up().success());
    assert_eq!(home.containers(), []);
}

#[test]
fn stdout_carries_nothing_but_protocol_however_much_is_logged() {
    let home = Home::new();
    let mut child = home
        .command(&["serve", "--transport", "stdio"])
        .env("HOTCELL_LOG", "trace")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let logged = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let asked = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "0" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ];
    let lines = asked.map(|message| format!("{message}\n")).concat();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, lines.as_bytes()).unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut answers = String::new();
    while answers.lines().count() < 2 {
        std::io::BufRead::read_line(&mut stdout, &mut answers).unwrap();
    }
    drop(stdin);
    stdout.read_to_string(&mut answers).unwrap();
    assert!(server::wait(&mut child).success());
    for line in answers.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
    }
    assert!(!logged.join().unwrap().unwrap().is_empty());
}

#[test]
fn a_bad_setting_is_a_clear_error_at_start() {
    let home = Home::new();
    for (arguments, word) in [
        (["--toolsets", "all"], "workspace"),
        (["--port", "http"], "--port"),
        (["--host", "no such host"], "no such host"),
    ] {
        let output = home.command(&["serve"]).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(word), "{said}");
    }
    let output = home
        .command(&["serve"])
        .env("HOTCELL_LOG", "loud=very")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("HOTCELL_LOG"));
}
