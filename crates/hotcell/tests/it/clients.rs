//! Real clients drive the real binary: the Python packages `mcp` and `fastmcp`, and the MCP
//! Inspector's command line. `tests/clients/install` brings them.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::home::Home;
use crate::support::{hotcell, server};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A client's program, if it is there and works for this user; else the test is skipped.
pub(crate) fn client(name: &str) -> Option<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let program = target.join("clients/bin").join(name);
    let works = Command::new(&program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if works {
        return Some(program);
    }
    let reason = format!("{name} is missing, or not ours to run: see tests/clients/install");
    hotcell_testkit::skip(hotcell_testkit::Need::Clients, &reason);
    None
}

/// Runs a client to its end; returns its stdout.
pub(crate) fn run(command: &mut Command) -> String {
    let output = server::output(command.stdin(Stdio::null()));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

/// A story that runs through a Python package.
fn story(package: &str, home: &Home) -> Option<Command> {
    script(package, &format!("{package}_story.py"), home)
}

/// A script of `tests/clients` by the Python of a package.
pub(crate) fn script(package: &str, file: &str, home: &Home) -> Option<Command> {
    let mut command = Command::new(client(&format!("python-{package}"))?);
    command
        .arg(root().join("tests/clients").join(file))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", home.path())
        .env("HOTCELL_STATE_DIR", home.path());
    Some(command)
}

/// The command line of a server on stdio. It carries everything, because some clients pass no environment.
pub(crate) fn stdio(command: &mut Command, home: &Home) {
    command
        .arg(hotcell())
        .args(["serve", "--transport", "stdio", "--state-dir"])
        .arg(home.path());
}

fn mcp_over_stdio(mode: &str) {
    let home = Home::new();
    let Some(mut command) = story("mcp", &home) else {
        return;
    };
    command.args(["stdio", mode]);
    stdio(&mut command, &home);
    run(&mut command);
}

fn mcp_over_http(mode: &str) {
    let home = Home::new();
    let Some(mut command) = story("mcp", &home) else {
        return;
    };
    let server = home.serve();
    run(command
        .args(["http", mode])
        .arg(format!("{}/mcp", server.url)));
    assert!(server.terminate().success());
}

#[test]
fn the_python_client_works_over_stdio_with_a_handshake() {
    mcp_over_stdio("legacy");
}

#[test]
fn the_python_client_works_over_stdio_without_a_handshake() {
    mcp_over_stdio("auto");
}

#[test]
fn the_python_client_works_over_http_with_a_session() {
    mcp_over_http("legacy");
}

#[test]
fn the_python_client_works_over_http_without_a_session() {
    mcp_over_http("auto");
}

#[test]
fn the_python_client_works_over_sse() {
    let home = Home::new();
    let Some(mut command) = story("mcp", &home) else {
        return;
    };
    let server = home.serve_with(&["--transport", "sse"]);
    run(command.arg("sse").arg(format!("{}/sse", server.url)));
    assert!(server.terminate().success());
}

#[test]
fn fastmcp_works_over_stdio() {
    let home = Home::new();
    let Some(mut command) = story("fastmcp", &home) else {
        return;
    };
    command.arg("stdio");
    stdio(&mut command, &home);
    run(&mut command);
}

#[test]
fn fastmcp_works_over_http() {
    let home = Home::new();
    let Some(mut command) = story("fastmcp", &home) else {
        return;
    };
    let server = home.serve();
    run(command.arg(format!("{}/mcp", server.url)));
    assert!(server.terminate().success());
}

/// The Inspector connected to a server, one call at a time.
struct Inspector<'a> {
    program: PathBuf,
    home: &'a Home,
    target: Vec<String>,
}

impl Inspector<'_> {
    fn call(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(&self.program);
        command
            .arg("--cli")
            .args(&self.target)
            .args(arguments)
            .env("HOME", self.home.path());
        serde_json::from_str(&run(&mut command)).unwrap()
    }

    fn tool(&self, name: &str, arguments: &[&str]) -> Value {
        let mut line = vec!["--method", "tools/call", "--tool-name", name];
        for argument in arguments {
            line.extend(["--tool-arg", argument]);
        }
        self.call(&line)["structuredContent"].clone()
    }

    fn story(&self, tool_count: usize) {
        let tools = self.call(&["--method", "tools/list"]);
        assert_eq!(tools["tools"].as_array().unwrap().len(), tool_count);
        let made = self.tool("spawn", &["alias=inspected", "persistent=true"]);
        assert_eq!(made["status"], "running", "{made}");
        self.tool(
            "fs_write",
            &["container_id=inspected", "path=a", "content=seen"],
        );
        let ran = self.tool(
            "exec_start",
            &["container_id=inspected", r#"cmd=["cat","a"]"#, "wait_s=30"],
        );
        assert_eq!(ran["messages"][0]["data"], "seen", "{ran}");
        self.tool("kill", &["container_id=inspected"]);
    }
}

#[test]
fn the_inspector_works_over_http() {
    let home = Home::new();
    let Some(program) = client("inspector") else {
        return;
    };
    let server = home.serve();
    let target = vec![format!("{}/mcp", server.url)];
    Inspector {
        program,
        home: &home,
        target,
    }
    .story(22);
    assert!(server.terminate().success());
}

#[test]
fn the_inspector_works_over_stdio() {
    let home = Home::new();
    let Some(program) = client("inspector") else {
        return;
    };
    // `--transport` would be the Inspector's own.
    let state = format!("HOTCELL_STATE_DIR={}", home.path().display());
    let binary = hotcell().display().to_string();
    let target = [
        &binary,
        "serve",
        "-e",
        "HOTCELL_TRANSPORT=stdio",
        "-e",
        &state,
    ];
    let target = target.map(str::to_owned).to_vec();
    Inspector {
        program,
        home: &home,
        target,
    }
    .story(26);
}
