//! Stories of `hotcell run`, with the real binary.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::support;

/// Runs `hotcell run` with a state directory of its own, and looks for leftovers.
fn run(arguments: &[&str]) -> Output {
    run_with_stdin(arguments, b"")
}

fn run_with_stdin(arguments: &[&str], stdin: &[u8]) -> Output {
    let state = support::scratch();
    let mut child = Command::new(support::hotcell())
        .arg("run")
        .arg("--state-dir")
        .arg(state.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its stdin closes it early.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    let left: Vec<_> = std::fs::read_dir(state.path().join("run/containers"))
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert!(left.is_empty(), "left behind: {left:?}");
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// stderr without the notice about limits that this host cannot enforce.
fn stderr(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let notice = |line: &&str| line.starts_with("hotcell: this host does not limit");
    said.split_inclusive('\n')
        .filter(|line| !notice(line))
        .collect()
}

#[test]
fn a_line_of_python_prints_what_it_says() {
    let output = run(&["-c", "print('hello from a sealed container')"]);
    assert_eq!(
        stdout(&output),
        "hello from a sealed container\n",
        "{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_exit_code_is_the_commands_own() {
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn a_command_that_died_of_a_signal_exits_with_128_and_its_number() {
    assert_eq!(
        run(&["--", "sh", "-c", "kill -TERM $$"]).status.code(),
        Some(143)
    );
}

#[test]
fn stdout_and_stderr_stay_apart() {
    let output = run(&["--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!(
        (stdout(&output).as_str(), stderr(&output).as_str()),
        ("out\n", "err\n")
    );
}

#[test]
fn stdin_is_passed_on_to_its_end() {
    let text = b"some words\n".repeat(50_000);
    let output = run_with_stdin(&["--", "cat"], &text);
    assert_eq!(output.stdout, text);
}

#[test]
fn after_the_timeout_it_exits_with_124_and_says_so() {
    let output = run(&["--timeout", "0.3", "--", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(stderr(&output), "hotcell: ended after 0.3 s (--timeout)\n");
}

#[test]
fn a_missing_command_exits_with_127_and_is_named() {
    let output = run(&["--", "no-such-command"]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(
        stderr(&output),
        "hotcell: no-such-command is not in this container\n"
    );
}

#[test]
fn code_of_a_megabyte_does_not_go_through_argv() {
    let directory = support::scratch();
    let script = directory.path().join("big.py");
    std::fs::write(
        &script,
        format!("x = '{}'\nprint(len(x))", "a".repeat(1 << 20)),
    )
    .unwrap();
    let output = run(&[script.to_str().unwrap()]);
    assert_eq!(stdout(&output), "1048576\n", "{}", stderr(&output));
}

#[test]
fn arguments_after_the_script_are_its_own() {
    let directory = support::scratch();
    let script = directory.path().join("args.sh");
    std::fs::write(&script, "printf '%s|' \"$@\"").unwrap();
    let output = run(&[script.to_str().unwrap(), "--", "a b", "--c"]);
    assert_eq!(stdout(&output), "a b|--c|", "{}", stderr(&output));
}

#[test]
fn only_the_environment_that_was_asked_for_is_there() {
    let output = run(&["-e", "ANSWER=42", "--", "env"]);
    let printed = stdout(&output);
    let mut names: Vec<_> = printed
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["ANSWER", "HOME", "LANG", "PATH"]);
    assert!(printed.contains("ANSWER=42\n"));
}

#[test]
fn one_json_object_tells_everything() {
    let output = run(&["--json", "--", "sh", "-c", "echo hi; exit 3"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["stdout"], "hi\n");
    assert_eq!(told["exit_code"], 3);
    assert_eq!(told["status"], "failed");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn ctrl_c_ends_the_whole_tree() {
    let state = support::scratch();
    let mut child = Command::new(support::hotcell())
        .args(["run", "--state-dir"])
        .arg(state.path())
        .args(["--", "sh", "-c", "setsid sleep 54321 & echo started; wait"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for pid in support::pids() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert_ne!(command, b"sleep\x0054321\0", "process {pid}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let state = support::scratch();
    let mut child = Command::new(support::hotcell())
        .args(["run", "--state-dir"])
        .arg(state.path())
        .args(["--", "yes"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 100];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut some).unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn an_image_that_cannot_be_had_is_a_clear_refusal() {
    let output = run(&["--image", "localhost/absent", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("localhost/absent:latest is not on this host"));
}

#[test]
fn a_rootfs_of_ones_own_is_the_containers_root() {
    let directory = support::scratch();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let busybox = std::path::Path::new("/bin/busybox");
    if !busybox.exists() {
        let reason = "there is no static busybox";
        hotcell_testkit::skip(hotcell_testkit::Need::Busybox, reason);
        return;
    }
    std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
    let image = format!("rootfs:{}", root.display());
    let output = run(&["--image", &image, "--", "/bin/busybox", "ls", "/"]);
    assert_eq!(
        stdout(&output),
        "bin\ndev\nproc\nsys\ntmp\nworkspace\n",
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_host_without_core_files_does_not_make_containers_run_its_crash_handler() {
    // Service managers set this limit to 0, with which the kernel runs the handler. Root may
    // raise it again, unless it is that of a container.
    let sh = |script: &str| Command::new("sh").args(["-c", script]).output().unwrap();
    if !sh("ulimit -c 0; ulimit -H -c 1").status.success() {
        let need = if rustix::process::geteuid().is_root() {
            hotcell_testkit::Need::Machine
        } else {
            hotcell_testkit::Need::Root
        };
        hotcell_testkit::skip(need, "this user may not raise a hard limit");
        return;
    }
    let state = support::scratch();
    let code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))";
    let output = Command::new("sh")
        .args(["-c", "ulimit -c 0; ulimit -H -c; exec \"$@\"", "sh"])
        .arg(support::hotcell())
        .arg("run")
        .arg("--state-dir")
        .arg(state.path())
        .args(["-c", code])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "0\n(1, 1)\n", "{}", stderr(&output));
}
