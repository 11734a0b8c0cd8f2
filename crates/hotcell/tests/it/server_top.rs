//! `hotcell top`: once, and live on a terminal.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::server::{Server, output, wait};
use crate::support::terminal::Terminal;

#[test]
fn a_snapshot_shows_what_runs_and_how_much_it_writes() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    let mut client = Client::socket(&home);
    let made = client.ok("spawn", json!({"alias": "busy"}));
    let container = made["container_id"].as_str().expect("an id").to_owned();
    let script = "while :; do echo line; sleep 0.01; done";
    let run = json!({"container_id": container, "cmd": ["/bin/sh", "-c", script]});
    let exec = client.ok("exec_start", run)["exec_id"].clone();
    // It writes all the time from here on.
    let poll = json!({"exec_id": exec, "wait_s": 50});
    let polled = client.ok("exec_poll", poll);
    assert_ne!(polled["messages"], json!([]), "{polled}");
    let taken = output(&mut home.command(&["top", "--json"]));
    assert!(taken.status.success(), "{taken:?}");
    let taken: Value = serde_json::from_slice(&taken.stdout).expect("JSON");
    assert_eq!(taken["containers"][0]["container_id"], container.as_str());
    assert_eq!(taken["containers"][0]["principal"], "local");
    assert_eq!(taken["execs"][0]["exec_id"], exec);
    let rate = taken["execs"][0]["output_bytes_per_s"].as_f64();
    assert!(rate.is_some_and(|rate| rate > 0.0), "{taken}");
    let shown = output(&mut home.command(&["top"]));
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.starts_with("1 containers, 1 execs\n"), "{shown}");
    assert!(shown.contains("busy") && !shown.contains('\x1b'), "{shown}");
    client.ok("kill", json!({"container_id": container, "force": true}));
    assert!(server.terminate().success());
}

#[test]
fn on_a_terminal_it_goes_on_until_q_and_puts_everything_back() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    let terminal = Terminal::new(24, 80);
    let before = terminal.modes();
    let mut shell = terminal.run(&home.command(&["top"]));
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("0 containers, 0 execs");
    Client::socket(&home).ok("spawn", json!({"alias": "seen"}));
    terminal.wait_for("seen");
    terminal.press("q");
    terminal.wait_for("\x1b[?1049l");
    terminal.wait_for("ended with 0");
    assert_eq!(terminal.modes(), before);
    terminal.press("\r");
    wait(&mut shell);
    assert!(server.terminate().success());
}
