//! Every revision of the protocol, on every transport that has it, on the real server; and
//! files that are larger than a message, without HTTP.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;

/// The revisions that begin with a handshake.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A short version of an AI agent's work.
fn work(client: &mut Client) {
    let tools = client.request("tools/list", json!({})).unwrap();
    assert!(tools["tools"].to_string().contains("exec_start"));
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let file = json!({ "container_id": id, "path": "a", "content": "seen" });
    client.ok("fs_write", file);
    let run = json!({ "container_id": id, "cmd": ["cat", "a"], "wait_s": 30 });
    let ran = client.call("exec_start", run);
    assert_eq!(ran["structuredContent"]["messages"][0]["data"], "seen");
    assert!(ran["content"][0]["text"].to_string().contains("seen"));
    client.ok("kill", json!({ "container_id": id }));
}

#[test]
fn every_revision_with_a_handshake_works_over_stdio() {
    for revision in REVISIONS {
        let home = Home::new();
        let mut client = Client::stdio_as(&home, &["--drain-grace-s", "0"], revision);
        work(&mut client);
        assert!(client.hang_up().success());
    }
}

#[test]
fn every_revision_works_over_streamable_http() {
    let home = Home::new();
    let server = home.serve();
    for revision in &REVISIONS[1..] {
        let mut client = Client::http_as(&server.url, revision);
        assert!(client.session().is_some());
        work(&mut client);
    }
    work(&mut Client::stateless(&server.url));
    assert!(server.terminate().success());
}

/// A client of the first revision: answers come on a stream of their own.
struct Sse {
    stream: Http,
    post: Http,
    path: String,
}

impl Sse {
    fn connect(url: &str) -> Self {
        let mut stream = Http::connect(url);
        stream.get("/sse", &[]);
        let path = stream.event();
        Self {
            stream,
            post: Http::connect(url),
            path,
        }
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.post.post(&self.path, &[], &message.to_string());
        assert_eq!(self.post.status, 202);
        self.post.read_whole();
        loop {
            let mut answer: Value = serde_json::from_str(&self.stream.event()).unwrap_or_default();
            if answer["id"] == id {
                return answer["result"].take();
            }
        }
    }
}

#[test]
fn the_first_revision_works_over_sse() {
    let home = Home::new();
    let server = home.serve();
    let mut sse = Sse::connect(&server.url);
    let greeting = json!({
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" },
    });
    let greeted = sse.request(1, "initialize", &greeting);
    assert_eq!(greeted["protocolVersion"], "2024-11-05", "{greeted}");
    let mut call = |id, tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        let result = sse.request(id, "tools/call", &params);
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    };
    let id = call(2, "spawn", json!({}))["container_id"].clone();
    let run = json!({ "container_id": id, "cmd": ["echo", "hi"], "wait_s": 30 });
    assert_eq!(call(3, "exec_start", run)["messages"][0]["data"], "hi\n");
    call(4, "kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
}

/// A batch of two requests, a notification and something that is no message.
fn batch() -> Value {
    json!([
        { "jsonrpc": "2.0", "id": 101, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": 1 } },
        { "jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": { "name": "list_containers", "arguments": {} } },
        { "jsonrpc": "2.0", "id": 103 },
    ])
}

fn expect_answers(answers: &Value) {
    let answers = answers.as_array().unwrap_or_else(|| panic!("{answers}"));
    assert_eq!(answers.len(), 3, "{answers:?}");
    let of = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(of(json!(101))["result"], json!({}));
    assert!(of(json!("b"))["result"]["structuredContent"]["containers"].is_array());
    assert_eq!(of(json!(103))["error"]["code"], -32600);
}

#[test]
fn batches_are_answered_by_batches_in_the_revision_that_has_them() {
    let home = Home::new();
    let server = home.serve();
    let mut http = Client::http_as(&server.url, "2025-03-26");
    expect_answers(&http.batch(batch()));
    work(&mut http);
    assert!(server.terminate().success());
    let mut stdio = Client::stdio_as(&home, &["--drain-grace-s", "0"], "2025-03-26");
    expect_answers(&stdio.batch(batch()));
    work(&mut stdio);
    assert!(stdio.hang_up().success());
}

#[test]
fn a_batch_in_another_revision_is_an_error_and_nothing_hangs() {
    let home = Home::new();
    let mut stdio = Client::stdio_as(&home, &["--drain-grace-s", "0"], "2025-06-18");
    let answer = stdio.batch(batch());
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert!(
        answer["error"]["message"]
            .to_string()
            .contains("2025-03-26")
    );
    work(&mut stdio);
    assert!(stdio.hang_up().success());
}

/// Bytes that are no text and that no archive makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| byte()).collect()
}

fn write_in_parts(client: &mut Client, path: &str, data: &[u8]) {
    for part in data.chunks(4 << 20) {
        let content = BASE64_STANDARD.encode(part);
        let write = json!({ "container_id": "cell", "path": path, "content": content, "encoding": "base64", "append": true });
        client.ok("fs_write", write);
    }
}

fn read_in_parts(client: &mut Client, path: &str) -> Vec<u8> {
    let mut data = Vec::new();
    let mut next = json!(0);
    while !next.is_null() {
        let read =
            json!({ "container_id": "cell", "path": path, "offset": next, "limit": 4 << 20 });
        let read = client.ok("fs_read", read);
        assert_eq!(read["encoding"], "base64");
        let part = BASE64_STANDARD.decode(read["content"].as_str().unwrap());
        data.extend(part.unwrap());
        next = read["next_offset"].clone();
    }
    data
}

fn run(client: &mut Client, cmd: &[&str]) {
    let run = json!({ "container_id": "cell", "cmd": cmd, "wait_s": 50 });
    let ran = client.ok("exec_start", run);
    assert_eq!(ran["exit_code"], 0, "{ran}");
}

/// The hint of a tool that refuses because the reply is too large.
fn hint(client: &mut Client, tool: &str, arguments: Value) -> String {
    let answer = client.call(tool, arguments);
    let said = &answer["structuredContent"];
    assert_eq!(said["code"], "resource_exhausted", "{answer}");
    said["hint"].as_str().unwrap().to_owned()
}

#[test]
fn ten_megabytes_go_in_and_out_over_stdio() {
    let home = Home::new();
    let mut client = Client::stdio(&home, &["--drain-grace-s", "0"]);
    client.ok("spawn", json!({ "alias": "cell" }));
    let data = noise(10 << 20);
    write_in_parts(&mut client, "d/big", &data);
    assert!(read_in_parts(&mut client, "d/big") == data, "it differs");
    // The error about an archive that is too large names another way, and that works.
    let said = hint(
        &mut client,
        "fs_export",
        json!({ "container_id": "cell", "path": "d" }),
    );
    assert!(
        said.contains("\"tar\"") && said.contains("next_offset"),
        "{said}"
    );
    run(&mut client, &["tar", "czf", "export.tgz", "d"]);
    let archive = read_in_parts(&mut client, "export.tgz");
    let said = hint(
        &mut client,
        "fs_import",
        json!({ "container_id": "cell", "dest": "e" }),
    );
    assert!(
        said.contains("append=true") && said.contains("\"tar\""),
        "{said}"
    );
    write_in_parts(&mut client, "import.tgz", &archive);
    run(&mut client, &["mkdir", "e"]);
    run(&mut client, &["tar", "xf", "import.tgz", "-C", "e"]);
    run(&mut client, &["cmp", "d/big", "e/d/big"]);
    client.ok("kill", json!({ "container_id": "cell" }));
    assert!(client.hang_up().success());
}
