//! How people and their clients begin: `hotcell mcp-config`, `hotcell init`, completions.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::terminal::Terminal;
use crate::support::{hotcell, server};

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A home whose clients keep their files in it.
fn home() -> Home {
    let home = Home::new();
    let path = home.path().to_str().unwrap().to_owned();
    home.with("HOME", &path)
}

#[test]
fn the_entry_that_is_written_starts_a_server_that_answers() {
    let home = home();
    let written = home.run(&[
        "mcp-config",
        "--client",
        "cursor",
        "--write",
        "--",
        "--toolsets",
        "code",
    ]);
    assert!(stdout(&written).contains("--undo"), "{}", stdout(&written));
    let file = home.path().join(".cursor/mcp.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let entry: Value =
        serde_json::from_str::<Value>(&text).unwrap()["mcpServers"]["hotcell"].clone();
    assert_eq!(
        PathBuf::from(entry["command"].as_str().unwrap()),
        hotcell().canonicalize().unwrap()
    );
    let arguments: Vec<&str> = entry["args"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let ["serve", "--transport", "stdio", flags @ ..] = &arguments[..] else {
        panic!("{arguments:?}");
    };
    let mut client = Client::stdio(&home, flags);
    let tools = client.request("tools/list", json!({})).unwrap();
    assert!(tools.to_string().contains("execute_code") && !tools.to_string().contains("\"spawn\""));
    assert!(client.hang_up().success());
    stdout(&home.run(&["mcp-config", "--client", "cursor", "--undo"]));
    assert!(!file.exists());
}

#[test]
fn flags_that_the_server_would_refuse_and_bad_tokens_are_refused_without_showing_them() {
    let home = home();
    let refused = home.run(&["mcp-config", "--client", "zed", "--", "--no-such-flag"]);
    assert!(
        stderr(&refused).contains("--no-such-flag"),
        "{}",
        stderr(&refused)
    );
    let words = [
        "mcp-config",
        "--client",
        "zed",
        "--remote",
        "https://h",
        "--token",
        "hc_secret\n",
    ];
    let refused = home.run(&words);
    assert!(!refused.status.success());
    assert!(
        !stderr(&refused).contains("hc_secret"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn init_asks_writes_tries_and_connects() {
    let home = home();
    let terminal = Terminal::new(24, 100);
    let mut child = terminal.run(&home.command(&["init"]));
    terminal.wait_for("Who uses it");
    terminal.press("local\r");
    terminal.wait_for("How much memory");
    terminal.press("256m\r");
    terminal.wait_for("Which client");
    terminal.press("cursor\r");
    terminal.wait_for("ended with 0");
    terminal.press("\r");
    server::wait(&mut child);
    assert!(
        terminal.shown().contains("it works"),
        "{}",
        terminal.shown()
    );
    // Home sets XDG_CONFIG_HOME.
    let file = home.path().join("hotcell/hotcell.toml");
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .contains("memory = \"256m\"")
    );
    assert!(home.path().join(".cursor/mcp.json").exists());
    let again = home.run(&["init", "--yes"]);
    assert!(stderr(&again).contains("--force"), "{}", stderr(&again));
}

#[test]
fn without_a_terminal_init_takes_flags() {
    let home = home();
    let refused = home.run(&["init"]);
    assert!(stderr(&refused).contains("--yes"), "{}", stderr(&refused));
    let file = home.path().join("mine.toml");
    let words = [
        "init",
        "--yes",
        "--no-try",
        "--reach",
        "network",
        "--path",
        file.to_str().unwrap(),
    ];
    let said = stdout(&home.run(&words));
    assert!(said.contains("hotcell token add"), "{said}");
    stdout(&home.run(&["config", "check", file.to_str().unwrap()]));
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let home = home();
    let script = stdout(&home.run(&["completions", "bash"]));
    let ask =
        "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _hotcell; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let complete = |words: &[&str]| {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("{script}{ask}"), "bash"])
            .arg(hotcell())
            .args(words);
        stdout(&bash.output().unwrap())
    };
    assert_eq!(complete(&["mcp-c"]), "mcp-config\n");
    assert_eq!(complete(&["serve", "--transport", "std"]), "stdio\n");
    assert_eq!(complete(&["mcp-config", "--und"]), "--undo\n");
}
