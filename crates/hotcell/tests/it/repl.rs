//! Stories of `hotcell repl`: a person at a terminal.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use hotcell_testkit::{Need, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::home::Home;
use crate::support::terminal::Terminal;
use crate::support::{server, tree, wait_until};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";

/// A terminal in which `hotcell repl` runs.
struct Person {
    terminal: Terminal,
    shell: Child,
    prompts: usize,
    prompt: &'static str,
}

impl Person {
    fn sits_down(home: &Home, arguments: &[&str]) -> Self {
        let terminal = Terminal::new(40, 120);
        let artifacts = artifacts(home);
        let words = [
            &["repl", "--artifacts", artifacts.to_str().unwrap()],
            arguments,
        ]
        .concat();
        let mut command = home.command(&words);
        command
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", home.path());
        let shell = terminal.run(&command);
        let is_python = !arguments.contains(&"--lang");
        let mut person = Self {
            terminal,
            shell,
            prompts: 0,
            prompt: if is_python { ">>> " } else { "bash> " },
        };
        person.sees_prompt();
        person
    }

    /// A prompt in a line of its own; what is typed is shown with its prompt many times.
    fn sees_prompt(&mut self) {
        self.prompts += 1;
        // The line editor asks the terminal for pasted text to be marked whenever it begins a line.
        self.terminal.wait_for_times("\x1b[?2004h", self.prompts);
        self.terminal.wait_for(self.prompt);
    }

    /// Types an input and waits for the next prompt; returns what came between.
    fn types(&mut self, input: &str) -> String {
        let before = self.terminal.shown().len();
        self.terminal.press(&format!("{input}\r"));
        self.sees_prompt();
        let shown = self.terminal.shown()[before..].to_owned();
        // Everything after the input was taken.
        let (_, answer) = shown.split_once("\x1b[?2004l").unwrap();
        answer.to_owned()
    }

    fn leaves(mut self, key: &str, ending: &str) {
        self.terminal.press(key);
        self.terminal.wait_for(ending);
        self.terminal.press("\r");
        server::wait(&mut self.shell);
    }
}

/// Whether a program in the only container has created the file `begun`.
fn has_begun(home: &Home) -> bool {
    let tree = tree(&home.engine_home());
    let names = home.workspaces();
    names
        .iter()
        .any(|name| tree.join(name).join("fs/begun").exists())
}

fn artifacts(home: &Home) -> PathBuf {
    home.path().join("saved")
}

#[test]
fn variables_survive_from_line_to_line_an_interrupt_and_an_error() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let mut person = Person::sits_down(&home, &[]);
    assert!(!person.types("x = 6 * 7").contains("42"));
    assert!(person.types("x").contains("42\r\n"));
    // Lines of one statement: the empty line ends it.
    let looped = person.types("for i in range(3):\r    print('line', i + x)\r");
    assert!(
        looped.contains("line 42\r\nline 43\r\nline 44\r\n"),
        "{looped:?}"
    );
    let failed = person.types("1 / 0");
    assert!(
        failed.contains("ZeroDivisionError") && !failed.contains("hotcell:"),
        "{failed:?}"
    );
    person
        .terminal
        .press("print('it ' + 'runs'); open('begun', 'w'); exec('while 1: pass')\r");
    wait_until("the cell runs", || has_begun(&home));
    let containers = client.ok("list_containers", json!({}));
    let session = containers["containers"][0]["session"].as_str().unwrap();
    assert!(
        session.starts_with("repl-"),
        "it has a session of its own: {session}"
    );
    person.terminal.press(CTRL_C);
    person.sees_prompt();
    let shown = person.terminal.shown();
    assert!(
        shown.contains("it runs") && shown.contains("KeyboardInterrupt"),
        "{shown:?}"
    );
    assert!(person.types("x + 1").contains("43\r\n"));
    // Ctrl-C at the prompt throws away what was typed.
    person.terminal.press(&format!("y = 1{CTRL_C}"));
    person.sees_prompt();
    assert!(person.types("y").contains("NameError"));
    assert!(!person.types("%restart").contains("hotcell:"));
    assert!(person.types("x").contains("NameError"));
    person.leaves(CTRL_D, "ended with 0");
    let containers = client.ok("list_containers", json!({}));
    assert_eq!(containers["containers"], json!([]), "its session has ended");
    assert!(server.terminate().success());
}

#[test]
fn what_was_typed_is_remembered_for_its_owner_alone() {
    let home = Home::new();
    let mut person = Person::sits_down(&home, &[]);
    person.types("if 'a':\r    pass\r");
    assert!(person.types("6 * 7").contains("42\r\n"));
    person.leaves(CTRL_D, "ended with 0");
    let file = home.path().join("hotcell/repl_history_python");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert_eq!(kept, "#V2\nif 'a':\\n    pass\n6 * 7\n");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut person = Person::sits_down(&home, &[]);
    let again = person.types(&format!("{UP} + 1"));
    assert!(again.contains("43\r\n"), "{again:?}");
    person.leaves(CTRL_D, "ended with 0");
}

#[test]
fn without_a_server_pictures_are_saved_and_nothing_is_left() {
    let home = Home::new();
    let mut person = Person::sits_down(&home, &[]);
    let picture =
        "class P:\r    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + bytes(9)\r";
    person.types(picture);
    let shown = person.types("P()");
    assert!(
        shown.contains("<__main__.P object") && shown.contains("saved"),
        "{shown:?}"
    );
    person.types("P()");
    let names = std::fs::read_dir(artifacts(&home)).unwrap().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["figure-value-01-2.png", "figure-value-01.png"]);
    // What a container shows never controls the terminal.
    let shown = person.types("print('\\x1b]0;title\\x07')");
    assert!(
        shown.contains("␛]0;title␇") && !shown.contains("\x1b]0;"),
        "{shown:?}"
    );
    person.leaves("exit()\r", "ended with 0");
    assert_eq!(home.containers(), []);
    let left = std::fs::read_dir(home.path().join("repl")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn other_languages_run_each_input_as_a_program() {
    let home = Home::new();
    let mut person = Person::sits_down(&home, &["--lang", "bash"]);
    assert!(person.types("echo $((6 * 7)); x=1").contains("42\r\n"));
    let looped = person.types("for i in 1 2; do\recho \"<$i$x>\"\rdone");
    assert!(looped.contains("<1>\r\n<2>\r\n"), "{looped:?}");
    assert!(person.types("exit 3").contains("hotcell: exit code 3"));
    person
        .terminal
        .press("echo how'' far; touch begun; sleep 1000\r");
    wait_until("it runs", || has_begun(&home));
    person.terminal.press(CTRL_C);
    person.sees_prompt();
    // What it wrote is shown although it did not end by itself.
    assert!(person.terminal.shown().contains("how far\r\n"));
    person.leaves(CTRL_D, "ended with 0");
    assert_eq!(home.containers(), []);
}

#[test]
fn a_signal_at_the_prompt_ends_it_and_gives_the_terminal_back() {
    let home = Home::new();
    let terminal = Terminal::new(24, 80);
    let before = terminal.modes();
    let mut command = home.command(&["repl"]);
    command
        .env("TERM", "xterm")
        .env("XDG_STATE_HOME", home.path());
    let mut shell = terminal.run(&command);
    terminal.wait_for(">>> ");
    assert_ne!(terminal.modes(), before);
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let children = std::fs::read_to_string(children).unwrap();
    let child = children.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(child).unwrap(), Signal::TERM).unwrap();
    terminal.wait_for("ended with 143");
    assert_eq!(terminal.modes(), before);
    terminal.press("\r");
    server::wait(&mut shell);
    assert_eq!(home.containers(), []);
}

#[test]
fn a_session_of_the_server_can_be_joined_and_stays() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut client = server.client();
    let cell = json!({ "code": "x = 42", "stateful": true });
    client.ok("execute_code", cell);
    let mut command = home.command(&["repl", "--session", "default"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = b"x\nfor i in 'ab':\n    print(i)\n\nx = 43\nif x:\n    print('last')";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "42\na\nb\nlast\n"
    );
    let cell = json!({ "code": "x", "stateful": true });
    assert_eq!(client.ok("execute_code", cell)["result"]["text"], "43");
    assert!(server.terminate().success());
}

#[test]
fn run_saves_the_figures_of_a_program() {
    let has_matplotlib = std::process::Command::new("/usr/bin/python3")
        .args(["-c", "import matplotlib"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_matplotlib {
        return skip(Need::Programs, "no python3-matplotlib");
    }
    let home = Home::new();
    let saved = artifacts(&home);
    let plot = "import matplotlib.pyplot as plt; plt.plot([1, 2]); raise SystemExit(3)";
    let output = home.run(&["run", "--artifacts", saved.to_str().unwrap(), "-c", plot]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("hotcell: saved") && said.contains("figure-01.png"),
        "{said}"
    );
    let picture = std::fs::read(saved.join("figure-01.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    // What is no file, or too large to be one, is not saved, and that is told.
    let hostile = "import os; os.makedirs('artifacts'); os.mkfifo('artifacts/pipe'); os.symlink('/etc/passwd', 'artifacts/link.txt'); os.truncate(os.open('artifacts/huge', os.O_CREAT | os.O_RDWR), 1 << 40)";
    let output = home.run(&["run", "--artifacts", saved.to_str().unwrap(), "-c", hostile]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("huge is not saved"), "{said}");
    let left = std::fs::read_dir(&saved).unwrap().count();
    assert_eq!(left, 1, "{said}");
}
