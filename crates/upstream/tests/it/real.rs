//! Real servers on all transports. `tests/clients/install` brings them.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hotcell_upstream::{Content, Endpoint, Entry, Launch, Template};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::fixture::{Bench, Scratch, call, entry, name, program, structured, until};

/// A program that was installed; else the test is skipped.
fn installed(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let path = target.join("clients/bin").join(name);
    if path.exists() {
        return Some(path);
    }
    let reason = format!("{name} is missing: see tests/clients/install");
    hotcell_testkit::skip(hotcell_testkit::Need::Clients, &reason);
    None
}

/// A server on a port of this host; dropped, it ends.
struct Listening {
    port: u16,
    #[expect(dead_code, reason = "dropped, it is killed")]
    child: Child,
}

async fn listening(command: &mut Command, port: u16) -> Listening {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()).await;
    Listening { port, child }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn at(server: &str, url: &str, is_sse: bool) -> Entry {
    let endpoint = Endpoint {
        url: Template::parse(url).unwrap(),
        headers: Vec::new(),
    };
    entry(
        server,
        if is_sse {
            Launch::Sse(endpoint)
        } else {
            Launch::Http(endpoint)
        },
    )
}

/// What every transport of server-everything has to give.
async fn everything(bench: &Bench) {
    let listed = bench.local().definitions(&name("s")).await.unwrap();
    let names: Vec<&str> = listed.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names.contains(&"echo"), "{names:?}");
    let result = bench
        .call("s", "echo", &json!({ "message": "größe" }))
        .await
        .unwrap();
    assert!(
        matches!(&result.content[0], Content::Text { text } if text.contains("größe")),
        "{result:?}"
    );
    let result = bench.call("s", "get-tiny-image", &json!({})).await.unwrap();
    assert!(
        result.content.iter().any(
            |content| matches!(content, Content::Image(image) if image.mime_type == "image/png")
        )
    );
    let result = bench
        .call(
            "s",
            "get-structured-content",
            &json!({ "location": "New York" }),
        )
        .await
        .unwrap();
    assert!(structured(&result).is_object());
    let result = bench.call("s", "no-such-tool", &json!({})).await;
    assert!(result.is_err() || result.is_ok_and(|result| result.is_error));
    let resources = bench.local().list_resources(&name("s")).await.unwrap();
    let read = bench
        .local()
        .read_resource(&name("s"), &resources[0].uri)
        .await
        .unwrap();
    assert!(read[0].text.is_some() || read[0].blob.is_some());
    let (sender, mut receiver) = mpsc::channel(16);
    let mut long = call(
        "s",
        "trigger-long-running-operation",
        &json!({ "duration": 0.2, "steps": 2 }),
    );
    long.progress = Some(sender);
    bench.local().call_tool(long).await.unwrap();
    assert!(receiver.recv().await.is_some(), "no progress");
}

#[tokio::test]
async fn server_everything_on_stdio() {
    let Some(server) = installed("server-everything") else {
        return;
    };
    let bench = Bench::new(vec![program("s", server.to_str().unwrap(), &["stdio"])]);
    everything(&bench).await;
}

#[tokio::test]
async fn server_everything_on_streamable_http_with_sessions() {
    let Some(server) = installed("server-everything") else {
        return;
    };
    let port = free_port();
    let server = listening(
        Command::new(server)
            .arg("streamableHttp")
            .env("PORT", port.to_string()),
        port,
    )
    .await;
    let bench = Bench::new(vec![at(
        "s",
        &format!("http://127.0.0.1:{}/mcp", server.port),
        false,
    )]);
    everything(&bench).await;
    bench.upstreams.stop().await;
}

#[tokio::test]
async fn server_everything_on_sse() {
    let Some(server) = installed("server-everything") else {
        return;
    };
    let port = free_port();
    let server = listening(
        Command::new(server)
            .arg("sse")
            .env("PORT", port.to_string()),
        port,
    )
    .await;
    let bench = Bench::new(vec![at(
        "s",
        &format!("http://127.0.0.1:{}/sse", server.port),
        true,
    )]);
    everything(&bench).await;
}

#[tokio::test]
async fn server_filesystem_and_server_memory() {
    let (Some(files), Some(memory)) = (installed("server-filesystem"), installed("server-memory"))
    else {
        return;
    };
    let directory = Scratch::new();
    let path = directory.path().canonicalize().unwrap();
    let mut memory = program("memory", memory.to_str().unwrap(), &[]);
    if let Launch::Stdio(program) = &mut memory.launch {
        let file = path.join("memory.jsonl").to_str().unwrap().to_owned();
        program.environment = vec![("MEMORY_FILE_PATH".to_owned(), Template::literal(file))];
    }
    let files = program("files", files.to_str().unwrap(), &[path.to_str().unwrap()]);
    let bench = Bench::new(vec![files, memory]);
    let note = path.join("note.txt");
    let written = bench
        .call(
            "files",
            "write_file",
            &json!({ "path": note, "content": "x" }),
        )
        .await
        .unwrap();
    assert!(!written.is_error, "{written:?}");
    assert_eq!(std::fs::read_to_string(&note).unwrap(), "x");
    let entities =
        json!({ "entities": [{ "name": "n", "entityType": "t", "observations": ["o"] }] });
    bench
        .call("memory", "create_entities", &entities)
        .await
        .unwrap();
    let graph = bench
        .call("memory", "read_graph", &json!({}))
        .await
        .unwrap();
    assert!(
        structured(&graph)["entities"][0]["name"] == "n",
        "{graph:?}"
    );
    assert_eq!(
        bench.local().search("write file", None, 1)[0].tool().name,
        "write_file"
    );
}

#[tokio::test]
async fn a_server_of_the_python_sdk_on_every_transport() {
    let Some(python) = installed("python-mcp") else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/python_server.py");
    let (http, sse) = (free_port(), free_port());
    let _http = listening(
        Command::new(&python).args([script, "streamable-http", &http.to_string()]),
        http,
    )
    .await;
    let _sse = listening(
        Command::new(&python).args([script, "sse", &sse.to_string()]),
        sse,
    )
    .await;
    let bench = Bench::new(vec![
        program("stdio", python.to_str().unwrap(), &[script, "stdio"]),
        at("http", &format!("http://127.0.0.1:{http}/mcp"), false),
        at("sse", &format!("http://127.0.0.1:{sse}/sse"), true),
    ]);
    for server in ["stdio", "http", "sse"] {
        let (sender, mut receiver) = mpsc::channel(16);
        let mut add = call(server, "add", &json!({ "a": 2, "b": 3 }));
        add.progress = Some(sender);
        let result = bench.local().call_tool(add).await.unwrap();
        assert_eq!(structured(&result), json!({ "result": 5 }), "{server}");
        assert!(receiver.recv().await.is_some(), "{server}: no progress");
        let read = bench
            .local()
            .read_resource(&name(server), "memo://x")
            .await
            .unwrap();
        assert_eq!(read[0].text.as_deref(), Some("memo x"), "{server}");
        let arguments = RawValue::from_string(json!({ "name": "ann" }).to_string()).unwrap();
        let prompt = bench
            .local()
            .get_prompt(&name(server), "greet", Some(&arguments))
            .await
            .unwrap();
        assert!(
            matches!(&prompt[0].content, Content::Text { text } if text == "hello ann"),
            "{server}"
        );
        assert_eq!(
            bench.local().list_prompts(&name(server)).await.unwrap()[0].name,
            "greet"
        );
        let wrong: Result<_, _> = bench
            .call(server, "add", &json!({ "a": Value::Null }))
            .await;
        assert!(
            wrong.is_err() || wrong.is_ok_and(|wrong| wrong.is_error),
            "{server}"
        );
    }
    // It speaks both generations over HTTP, and we prefer the one without sessions.
    assert_eq!(bench.local().servers()[1].protocol, Some("2026-07-28"));
    assert_eq!(bench.local().servers()[0].protocol, Some("2025-11-25"));
}
