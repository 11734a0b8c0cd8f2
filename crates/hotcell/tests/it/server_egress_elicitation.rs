//! `[egress] ask = "hold"`: the user of a real client is asked while a call is open.
//! `tests/clients/install` brings the client.

use std::process::Command;

use serde_json::json;

use crate::clients;
use crate::server_auth::token;
use crate::server_egress::{Configured, Origin};
use crate::server_egress_ask::config;
use crate::support::home::Home;
use crate::support::hotcell;
use crate::support::mcp::Client;

/// Whatever they ask for is one origin, and nothing is listed.
const HOSTS: [&str; 9] = [
    "cli.example.com",
    "code.example.com",
    "late.example.com",
    "left.example.com",
    "new.example.com",
    "once.example.com",
    "other.example.com",
    "poll.example.com",
    "script.example.com",
];

/// A home in which sessions have a profile, too.
fn asking(origin: &Origin) -> Configured {
    let configured = Configured::new(origin, &[]);
    let text = config(origin, &HOSTS, 60);
    configured.write(&text.replacen("[egress]\n", "[egress]\ndefault = 'work'\n", 1));
    configured
}

fn story(configured: &Configured) -> Option<Command> {
    let mut command = clients::script("mcp", "egress_story.py", &configured.home)?;
    command.env("HOTCELL", hotcell());
    Some(command)
}

/// The audit log tells how each answer came.
fn assert_recorded(configured: &Configured) {
    let log = configured.home.run(&["egress", "log", "--json"]);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let answers = log.lines().filter(|line| line.contains("EGRESS_ANSWER"));
    let by = |means: &str| {
        let means = format!("\"by\":\"{means}\"");
        answers.clone().any(|line| line.contains(&means))
    };
    assert!(by("elicitation") && by("cli"), "{log}");
}

fn asks_over_stdio(mode: &str) {
    let origin = Origin::start();
    let configured = asking(&origin);
    let Some(mut command) = story(&configured) else {
        return;
    };
    command.args(["asks", "stdio", mode]);
    clients::stdio(&mut command, &configured.home);
    clients::run(command.arg("--config").arg(configured.path()));
    assert_recorded(&configured);
}

fn asks_over_http(mode: &str) {
    let origin = Origin::start();
    let configured = asking(&origin);
    let Some(mut command) = story(&configured) else {
        return;
    };
    let server = configured.home.serve();
    command.args(["asks", "http", mode]);
    clients::run(command.arg(format!("{}/mcp", server.url)));
    assert!(server.terminate().success());
    assert_recorded(&configured);
}

#[test]
fn the_user_of_a_client_with_a_handshake_decides_about_hosts_over_stdio() {
    asks_over_stdio("legacy");
}

#[test]
fn the_user_of_a_client_without_a_handshake_decides_about_hosts_over_stdio() {
    asks_over_stdio("auto");
}

#[test]
fn the_user_of_a_client_with_a_session_decides_about_hosts_over_http() {
    asks_over_http("legacy");
}

#[test]
fn the_user_of_a_client_without_a_session_decides_about_hosts_over_http() {
    asks_over_http("auto");
}

fn strangers_are_not_asked(mode: &str) {
    let origin = Origin::start();
    let configured = asking(&origin);
    let Some(mut command) = story(&configured) else {
        return;
    };
    // Not even an admin is asked about containers of others.
    let owner = token(&configured.home, &["alice"]);
    let other = token(&configured.home, &["bob", "--admin"]);
    let server = configured.home.serve_with(&["--auth", "bearer"]);
    command.args(["strangers", "http", mode]);
    clients::run(
        command
            .arg(format!("{}/mcp", server.url))
            .args([owner, other]),
    );
    assert!(server.terminate().success());
}

#[test]
fn nobody_is_asked_about_containers_of_others_in_a_session() {
    strangers_are_not_asked("legacy");
}

#[test]
fn nobody_is_asked_about_containers_of_others_without_a_session() {
    strangers_are_not_asked("auto");
}

#[test]
fn a_repeated_request_whose_work_is_gone_does_nothing_again() {
    let home = Home::new();
    let server = home.serve();
    let mut client = Client::stateless(&server.url);
    client.ok("spawn", json!({ "alias": "cell" }));
    let touch = json!({ "container_id": "cell", "cmd": ["touch", "again"], "wait_s": 10 });
    let started = client.ok("exec_start", touch.clone());
    client.ok(
        "fs_delete",
        json!({ "container_id": "cell", "path": "again" }),
    );
    let mut repeat = |tool: &str, arguments: serde_json::Value| {
        let state = json!({ "name": tool, "arguments": arguments, "requestState": "0" });
        client.request("tools/call", state).expect("a result")["structuredContent"].clone()
    };
    assert_eq!(repeat("exec_start", touch)["code"], "not_found");
    let code = json!({ "code": "open('again', 'w')" });
    assert_eq!(repeat("execute_code", code)["code"], "not_found");
    // A poll can be repeated.
    let poll = json!({ "exec_id": started["exec_id"], "wait_s": 10 });
    assert_eq!(repeat("exec_poll", poll)["complete"], true);
    let listed = repeat("fs_list", json!({ "container_id": "cell" }));
    assert!(!listed.to_string().contains("again"), "{listed}");
    assert!(server.terminate().success());
}
