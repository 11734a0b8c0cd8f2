//! `hotcell ps`, `exec`, `logs` and `kill`, with a running server.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::{Read, Write};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::LocalModes;
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::served::Served;
use crate::support::terminal::Terminal;
use crate::support::{server, wait_until};

impl Served {
    fn run(&self, arguments: &[&str]) -> Output {
        self.home.run(arguments)
    }

    fn run_with_stdin(&self, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut command = self.home.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut pipe, stdin) = (child.stdin.take().unwrap(), stdin.to_vec());
        let writing = std::thread::spawn(move || pipe.write_all(&stdin));
        let output = child.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        output
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn without_a_server_each_says_what_to_start() {
    let home = Home::new();
    for (arguments, code) in [
        (&["ps"][..], 1),
        (&["exec", "cell", "--", "true"], 125),
        (&["logs", "cell"], 1),
        (&["kill", "cell"], 1),
    ] {
        let output = home.command(arguments).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            said.contains("no server runs") && said.contains("hotcell serve"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1);
    }
}

#[test]
fn ps_shows_what_runs() {
    let served = Served::with_cell();
    let shown = stdout(&served.run(&["ps"]));
    assert!(
        shown.starts_with("CONTAINER") && shown.contains("cell") && shown.contains("running"),
        "{shown}"
    );
    let listed: Value = serde_json::from_str(&stdout(&served.run(&["ps", "--json"]))).unwrap();
    assert_eq!(listed["containers"][0]["alias"], "cell");
    served.end();
}

#[test]
fn a_state_directory_far_down_has_its_server_its_clients_and_its_containers() {
    let home = Home::far_down();
    assert!(home.path().as_os_str().len() > 200);
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell" }));
    let output = home.run(&["exec", "cell", "--", "echo", "up"]);
    assert_eq!(stdout(&output), "up\n", "{}", stderr(&output));
    let output = home.run(&["ps"]);
    assert!(stdout(&output).contains("cell"), "{}", stderr(&output));
    // A second server on stdio passes bytes between its client and the first one.
    let mut second = Client::stdio(&home, &[]);
    let listed = second.ok("list_containers", json!({}));
    assert_eq!(listed["containers"][0]["alias"], "cell");
    assert!(second.hang_up().success());
    let ids = home.containers();
    assert!(server.terminate().success());
    home.assert_empty(&ids);
    assert!(!home.path().join("hotcell.sock").exists());
}

#[test]
fn exec_streams_output_and_has_the_commands_exit_code() {
    let served = Served::with_cell();
    let output = served.run(&[
        "exec",
        "cell",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
    ]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        (stdout(&output).as_str(), stderr(&output).as_str()),
        ("out\n", "err\n")
    );
    served.end();
}

#[test]
fn exec_passes_stdin_on_byte_for_byte() {
    let served = Served::with_cell();
    let data: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    let output = served.run_with_stdin(&["exec", "cell", "--", "cat"], &data);
    assert!(
        output.stdout == data,
        "{} bytes: {}",
        output.stdout.len(),
        stderr(&output)
    );
    served.end();
}

#[test]
fn exec_exits_as_run_does() {
    let served = Served::with_cell();
    for (arguments, code, words) in [
        (
            &["exec", "cell", "--", "sh", "-c", "kill -TERM $$"][..],
            143,
            "",
        ),
        (
            &["exec", "--timeout", "0.3", "cell", "--", "sleep", "1000"],
            124,
            "hotcell: ",
        ),
        (
            &["exec", "cell", "--", "no-such-command"],
            127,
            "no-such-command",
        ),
        (&["exec", "cell", "--", "/etc"], 126, "hotcell: "),
        (
            &["exec", "--cwd", "/no-such-place", "cell", "--", "true"],
            126,
            "no-such-place",
        ),
        (&["exec", "nobody", "--", "true"], 125, "nobody"),
    ] {
        let output = served.run(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{said}");
    }
    served.end();
}

#[test]
fn exec_takes_variables_and_a_directory() {
    let served = Served::with_cell();
    let mut command = served.home.command(&[
        "exec",
        "-e",
        "A=b=c",
        "-e",
        "PASSED",
        "--cwd",
        "/tmp",
        "cell",
        "--",
        "sh",
        "-c",
        "echo $A $PASSED; pwd",
    ]);
    let output = command.env("PASSED", "on").output().unwrap();
    assert_eq!(stdout(&output), "b=c on\n/tmp\n", "{}", stderr(&output));
    served.end();
}

#[test]
fn exec_as_json_is_one_object() {
    let served = Served::with_cell();
    let output = served.run(&[
        "exec",
        "--json",
        "cell",
        "--",
        "sh",
        "-c",
        "echo out; exit 3",
    ]);
    let object: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&object["stdout"], &object["exit_code"], &object["status"]),
        (&json!("out\n"), &json!(3), &json!("failed"))
    );
    assert_eq!(output.status.code(), Some(3));
    served.end();
}

#[test]
fn ctrl_c_ends_everything_that_exec_started() {
    let mut served = Served::with_cell();
    let mut command = served.home.command(&[
        "exec",
        "cell",
        "--",
        "sh",
        "-c",
        "setsid sleep 1000 & echo on; wait",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(server::wait(&mut child).code(), Some(130));
    let execs = served
        .client
        .ok("list_execs", json!({ "include_finished": true }));
    assert_eq!(execs["execs"][0]["status"], "cancelled");
    let left = served.run(&[
        "exec",
        "cell",
        "--",
        "sh",
        "-c",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 100[0]'",
    ]);
    assert_eq!(stdout(&left).trim(), "0");
    served.end();
}

#[test]
fn exec_with_a_terminal_has_one() {
    let served = Served::with_cell();
    let output = served.run(&[
        "exec",
        "-t",
        "cell",
        "--",
        "sh",
        "-c",
        "test -t 0 && stty size",
    ]);
    assert_eq!(stdout(&output), "24 80\r\n", "{}", stderr(&output));
    served.end();
}

#[test]
fn exec_with_a_terminal_passes_keys_and_sizes_on_and_leaves_ours_as_it_was() {
    let mut served = Served::with_cell();
    let terminal = Terminal::new(31, 97);
    let before = terminal.modes();
    let script = "echo ready; while read line; do stty size; done";
    let exec = ["exec", "-t", "cell", "--", "sh", "-c", script];
    let mut shell = terminal.run(&served.home.command(&exec));
    terminal.wait_for("ready");
    let cooked = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    assert!(before.local.contains(cooked));
    assert!(!terminal.modes().local.intersects(cooked));
    // It is told its size soon after it was started, and each time that ours changes.
    wait_until("it has our size", || terminal.answer().contains("31 97"));
    terminal.resize(42, 123);
    wait_until("it is resized", || terminal.answer().contains("42 123"));
    terminal.press("\x03");
    terminal.wait_for("ended with 130");
    assert_eq!(terminal.modes(), before);
    terminal.press("\r");
    server::wait(&mut shell);
    // Ctrl-C was a key for the process inside, and no signal to us, which cancels.
    let execs = served
        .client
        .ok("list_execs", json!({ "include_finished": true }));
    let end = &execs["execs"][0];
    assert_eq!(
        (&end["status"], &end["signal"]),
        (&json!("failed"), &json!(2))
    );
    served.end();
}

#[test]
fn logs_shows_an_exec_or_the_newest_of_a_container() {
    let mut served = Served::with_cell();
    let mut run = |word: &str| {
        let run = json!({ "container_id": "cell", "cmd": ["echo", word], "wait_s": 30 });
        served.client.ok("exec_start", run)["exec_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (first, _second) = (run("first"), run("second"));
    assert_eq!(stdout(&served.run(&["logs", &first])), "first\n");
    assert_eq!(stdout(&served.run(&["logs", "cell"])), "second\n");
    assert_eq!(stdout(&served.run(&["logs", "-f", "cell"])), "second\n");
    let line: Value =
        serde_json::from_str(stdout(&served.run(&["logs", "--json", &first])).trim()).unwrap();
    assert_eq!(
        (&line["seq"], &line["data"]),
        (&json!(1), &json!("first\n"))
    );
    served.end();
}

#[test]
fn what_a_container_writes_does_not_command_our_terminal() {
    let mut served = Served::with_cell();
    // A title, the clipboard, a question whose answer the shell would read, and a colour.
    let script = r"printf '\033]0;title\007\033]52;c;cm0=\007\033[6n\033[31mred\033[0m\n'";
    let cmd = json!(["sh", "-c", script]);
    let run = json!({ "container_id": "cell", "cmd": cmd, "wait_s": 30 });
    served.client.ok("exec_start", run);
    let filtered = "␛]0;title␇␛]52;c;cm0=␇␛[6n\x1b[31mred\x1b[0m\r\n";
    let raw = "\x1b]0;title\x07\x1b]52;c;cm0=\x07\x1b[6n\x1b[31mred\x1b[0m\r\n";
    let exec = ["cell", "--", "sh", "-c", script];
    let alone = ["--", "sh", "-c", script];
    for (command, shown) in [
        ([&["logs", "cell"][..], &[]].concat(), filtered),
        ([&["exec"][..], &exec].concat(), filtered),
        ([&["run"][..], &alone].concat(), filtered),
        ([&["logs", "--raw", "cell"][..], &[]].concat(), raw),
        ([&["exec", "--raw"][..], &exec].concat(), raw),
        ([&["run", "--raw"][..], &alone].concat(), raw),
    ] {
        let terminal = Terminal::new(24, 80);
        let mut shell = terminal.run(&served.home.command(&command));
        terminal.wait_for("ended with 0");
        terminal.wait_for(shown);
        terminal.press("\r");
        server::wait(&mut shell);
    }
    // What is no terminal gets every byte.
    let output = served.run(&["logs", "cell"]);
    assert_eq!(stdout(&output), raw.replace("\r\n", "\n"));
    served.end();
}

#[test]
fn logs_follows_until_the_end() {
    let mut served = Served::with_cell();
    let run = json!({ "container_id": "cell", "cmd": ["sh", "-c", "echo begun; until [ -e go ]; do sleep 0.01; done; echo ended"] });
    served.client.ok("exec_start", run);
    let mut child = served
        .home
        .command(&["logs", "-f", "cell"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = child.stdout.take().unwrap();
    let mut begun = [0; 6];
    shown.read_exact(&mut begun).unwrap();
    served.client.ok(
        "fs_write",
        json!({ "container_id": "cell", "path": "go", "content": "" }),
    );
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert_eq!(
        (begun.as_slice(), rest.as_str()),
        (b"begun\n".as_slice(), "ended\n")
    );
    assert!(server::wait(&mut child).success());
    served.end();
}

#[test]
fn kill_ends_containers_by_id_or_alias() {
    let mut served = Served::with_cell();
    let id = served.client.ok("spawn", json!({}))["container_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let output = served.run(&["kill", "--json", "--force", "cell", "nobody", &id]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nobody"));
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["containers"].as_array().unwrap().len(), 3);
    assert_eq!(
        served.client.ok("list_containers", json!({}))["containers"],
        json!([])
    );
    served.end();
}
