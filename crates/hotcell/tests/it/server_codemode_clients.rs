//! Scripts of `run_python` that call real MCP servers, for a real client whose user can be asked.
//! `tests/clients/install` brings them all.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::clients::{self, client};
use crate::support::home::Home;
use crate::support::wait_until;

/// A small server with a tool that destroys.
const ECHO: &str = include_str!("../../../codemode/tests/it/echo_server.py");

/// A server of the Python SDK.
const PYTHON: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../upstream/tests/it/python_server.py"
);

/// A server on a port of this host; dropped, it ends.
struct Listening(Child);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listening(program: &PathBuf, transport: &str) -> (Listening, u16) {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let child = Command::new(program)
        .arg(transport)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let listening = Listening(child);
    wait_until("it listens", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    (listening, port)
}

/// Runs a story over a transport, in a protocol generation, with these servers.
fn tell(story: &str, transport: &str, mode: &str, upstreams: impl FnOnce(&Home) -> String) {
    let home = Home::new();
    let Some(mut command) = clients::script("mcp", "codemode_story.py", &home) else {
        return;
    };
    let script = home.path().join("echo.py");
    std::fs::write(&script, ECHO).unwrap();
    let script = script.display();
    let mut text = format!("[upstream.echo]\ncommand = '/usr/bin/python3'\nargs = ['{script}']\n");
    text.push_str(&upstreams(&home));
    let config = home.path().join("own.toml");
    std::fs::write(&config, text).unwrap();
    command
        .args([story, transport, mode])
        .env("STORY_ROOT", home.path().join("files"));
    if transport == "http" {
        let server = home.serve_with(&["--config", config.to_str().unwrap()]);
        clients::run(command.arg(format!("{}/mcp", server.url)));
        assert!(server.terminate().success());
    } else {
        clients::stdio(&mut command, &home);
        clients::run(command.arg("--config").arg(&config));
    }
}

fn asks(transport: &str, mode: &str) {
    tell("asks", transport, mode, |_| String::new());
}

#[test]
fn the_user_of_a_client_with_a_handshake_is_asked_over_stdio() {
    asks("stdio", "legacy");
}

#[test]
fn the_user_of_a_client_without_a_handshake_is_asked_over_stdio() {
    asks("stdio", "auto");
}

#[test]
fn the_user_of_a_client_with_a_session_is_asked_over_http() {
    asks("http", "legacy");
}

#[test]
fn the_user_of_a_client_without_a_session_is_asked_over_http() {
    asks("http", "auto");
}

fn servers(transport: &str, mode: &str) {
    let programs = ["everything", "filesystem", "memory"].map(client_of);
    let [Some(everything), Some(files), Some(graph)] = programs else {
        return;
    };
    let (Some(python), Some(fast)) = (client("python-mcp"), client("python-fastmcp")) else {
        return;
    };
    let fast_server = clients::root().join("tests/clients/fastmcp_server.py");
    let (_http, http) = listening(&everything, "streamableHttp");
    let (_sse, sse) = listening(&everything, "sse");
    tell("servers", transport, mode, |home| {
        let root = home.path().join("files");
        std::fs::create_dir(&root).unwrap();
        let memory = home.path().join("memory.jsonl");
        let (root, memory) = (root.display(), memory.display());
        let (everything, files) = (everything.display(), files.display());
        let (graph, python) = (graph.display(), python.display());
        let (fast, fast_server) = (fast.display(), fast_server.display());
        let mut text = String::new();
        let mut add = |name: &str, entry: String| {
            writeln!(text, "[upstream.{name}]\n{entry}").unwrap();
        };
        add(
            "everything",
            format!("command = '{everything}'\nargs = ['stdio']"),
        );
        add(
            "everything-http",
            format!("url = 'http://127.0.0.1:{http}/mcp'"),
        );
        add(
            "everything-sse",
            format!("url = 'http://127.0.0.1:{sse}/sse'\ntransport = 'sse'"),
        );
        add("files", format!("command = '{files}'\nargs = ['{root}']"));
        add(
            "graph",
            format!("command = '{graph}'\nenv = {{ MEMORY_FILE_PATH = '{memory}' }}"),
        );
        add(
            "python",
            format!("command = '{python}'\nargs = ['{PYTHON}', 'stdio']"),
        );
        add(
            "fast",
            format!("command = '{fast}'\nargs = ['{fast_server}']"),
        );
        text
    });
}

/// A server's program. It has no `--version`, so it is only looked for.
fn client_of(server: &str) -> Option<PathBuf> {
    // Node is ours to run wherever this is.
    let node = client("node")?;
    Some(node.with_file_name(format!("server-{server}")))
}

#[test]
fn scripts_call_real_servers_on_every_transport_for_a_client_on_stdio() {
    servers("stdio", "legacy");
}

#[test]
fn scripts_call_real_servers_on_every_transport_for_a_client_over_http() {
    servers("http", "auto");
}
