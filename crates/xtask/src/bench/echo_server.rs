//! An MCP server on stdio that does as little as possible, so that what is measured is not its work:
//! `xtask bench echo-server TOOLS`. And a client that calls it without anything between.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The word of the command line that makes this program the server.
pub(super) const WORD: &str = "echo-server";

/// Words of names.
const VERBS: [&str; 10] = [
    "list", "read", "create", "update", "delete", "search", "merge", "close", "assign", "export",
];
const NOUNS: [&str; 10] = [
    "issue", "branch", "invoice", "calendar", "message", "document", "customer", "pipeline",
    "secret", "image",
];

/// Serves until its stdin ends. Beside `echo` and `big` it has so many tools that do nothing.
pub(super) fn serve(tools: Option<&String>) -> Result<()> {
    let count = tools.map_or(Ok(0), |count| count.parse::<usize>())?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let Some(id) = request.get("id") else {
            continue;
        };
        let answer = match answer(&request, count) {
            Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            None => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown method"}})
            }
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        out.write_all(&line)?;
        out.flush()?;
    }
    Ok(())
}

fn answer(request: &Value, count: usize) -> Option<Value> {
    let parameters = &request["params"];
    match request["method"].as_str()? {
        "initialize" => Some(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        })),
        "tools/list" => Some(json!({ "tools": listed(count) })),
        "tools/call" => {
            let arguments = &parameters["arguments"];
            let text = match arguments["bytes"].as_u64() {
                Some(bytes) => "x".repeat(usize::try_from(bytes).ok()?),
                None => arguments["text"].as_str().unwrap_or_default().to_owned(),
            };
            Some(json!({"content": [{"type": "text", "text": text}]}))
        }
        _ => None,
    }
}

fn listed(count: usize) -> Vec<Value> {
    let tool = |name: &str, description: &str, argument: &str, kind: &str| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "properties": {argument: {"type": kind}}},
            "annotations": {"readOnlyHint": true},
        })
    };
    let mut tools = vec![
        tool("echo", "Says it again", "text", "string"),
        tool("big", "A long text", "bytes", "integer"),
    ];
    tools.extend((0..count).map(|number| {
        let (verb, noun) = (VERBS[number % 10], NOUNS[number / 10 % 10]);
        let name = format!("{verb}_{noun}_{number}");
        let description = format!("{verb} one {noun} of project {number} by its identifier");
        tool(&name, &description, &format!("{noun}_id"), "string")
    }));
    tools
}

/// The server, called directly.
pub(super) struct Bare {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
}

impl Bare {
    pub(super) fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["bench", WORD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take().context("its stdin")?;
        let stdout = BufReader::new(process.stdout.take().context("its stdout")?);
        Ok(Self {
            process,
            stdin,
            stdout,
            last_id: 0,
        })
    }

    /// Calls `echo` once.
    pub(super) fn call(&mut self) -> Result<()> {
        self.last_id += 1;
        let parameters = json!({"name": "echo", "arguments": {"text": "hi"}});
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": "tools/call", "params": parameters});
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.stdin.write_all(&line)?;
        let mut answered = String::new();
        self.stdout.read_line(&mut answered)?;
        let answer: Value = serde_json::from_str(&answered)?;
        ensure!(answer["id"] == json!(self.last_id), "{answer}");
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
