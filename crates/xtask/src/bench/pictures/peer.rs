//! Other MCP servers over stdio, measured in the same rounds: `--peer "NAME=COMMAND ARGUMENT…"`. A server takes part with each
//! of its tools that has the shape of one of ours; ours is one of them, over stdio as they are.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

/// How long a server may take to end after its stdin has.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// What `--peer` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::bench) struct PeerCommand {
    name: String,
    words: Vec<String>,
}

impl PeerCommand {
    /// Parses `NAME=COMMAND ARGUMENT…`.
    pub(in crate::bench) fn parse(text: &str) -> Result<Self> {
        let (name, command) = text
            .split_once('=')
            .context("--peer takes \"NAME=COMMAND ARGUMENT…\"")?;
        Self::new(
            name,
            command.split_whitespace().map(str::to_owned).collect(),
        )
    }

    pub(super) fn new(name: &str, words: Vec<String>) -> Result<Self> {
        ensure!(
            !name.is_empty() && !words.is_empty(),
            "--peer takes \"NAME=COMMAND ARGUMENT…\""
        );
        let name = name.to_owned();
        Ok(Self { name, words })
    }
}

/// What a tool is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Runs a snippet of Python.
    Code,
    /// Runs a command.
    Command,
    /// Runs a script of code mode.
    Script,
}

/// A tool of that shape is called so, or its name contains one of these.
const SHAPES: [(Shape, &[&str]); 3] = [
    (Shape::Script, &["run_python"]),
    (
        Shape::Code,
        &["execute_code", "run_code", "execute_python", "code_execut"],
    ),
    (
        Shape::Command,
        &[
            "exec_start",
            "execute_command",
            "run_command",
            "sandbox_exec",
        ],
    ),
];

/// Names of the argument that holds the code or the command, by how often servers use them.
const CODE_ARGUMENTS: [&str; 5] = ["code", "python_code", "script", "source", "snippet"];
const COMMAND_ARGUMENTS: [&str; 4] = ["cmd", "command", "commands", "argv"];

/// The argument that names a container, and tools that make one.
const CONTAINER_ARGUMENTS: [&str; 3] = ["container_id", "sandbox_id", "container"];
const SPAWN_TOOLS: [&str; 4] = [
    "spawn",
    "sandbox_initialize",
    "create_sandbox",
    "create_container",
];

/// A tool, and the arguments of a call that is measured.
#[derive(Debug, PartialEq)]
struct Call {
    row: String,
    tool: String,
    arguments: Value,
}

/// A server that runs, and what is measured of it.
pub(super) struct Peer {
    connection: Connection,
    calls: Vec<Call>,
}

impl Peer {
    /// Starts it and looks at its tools.
    pub(super) fn start(command: &PeerCommand) -> Result<Self> {
        let mut connection = Connection::start(&command.words)?;
        let listed = connection.request("tools/list", &json!({}))?;
        let tools = listed["tools"].as_array().cloned().unwrap_or_default();
        let mut container = None;
        if tools.iter().any(|tool| container_argument(tool).is_some())
            && let Some(spawn) = tools.iter().find(|tool| is_named(tool, &SPAWN_TOOLS))
        {
            container = Some(connection.spawn(text(&spawn["name"]))?);
        }
        let calls = calls(&command.name, &tools, container.as_deref());
        ensure!(
            !calls.is_empty(),
            "{} has no tool like execute_code, exec_start or run_python",
            command.name
        );
        Ok(Self { connection, calls })
    }

    /// Makes each of the calls; `done` is told which and how to make it.
    pub(super) fn each(
        &mut self,
        mut done: impl FnMut(&str, &mut dyn FnMut() -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let connection = &mut self.connection;
        for call in &self.calls {
            done(&call.row, &mut || {
                connection.call(&call.tool, &call.arguments).map(drop)
            })?;
        }
        Ok(())
    }
}

/// The calls to measure: for each shape the first tool whose name fits best.
fn calls(name: &str, tools: &[Value], container: Option<&str>) -> Vec<Call> {
    let of_shape = |(shape, names): &(Shape, &[&str])| {
        let found = tools
            .iter()
            .find(|tool| text(&tool["name"]) == names[0])
            .or_else(|| tools.iter().find(|tool| is_named(tool, names)))?;
        let arguments = arguments(*shape, found, container)?;
        let tool = text(&found["name"]).to_owned();
        let what = match shape {
            Shape::Command => "true",
            Shape::Code | Shape::Script => "print(1)",
        };
        let row = format!("{name}, {tool} {what}");
        Some(Call {
            row,
            tool,
            arguments,
        })
    };
    SHAPES.iter().filter_map(of_shape).collect()
}

/// The arguments of a call; `None` if the tool takes nothing that we know how to give.
fn arguments(shape: Shape, tool: &Value, container: Option<&str>) -> Option<Value> {
    let properties = tool["inputSchema"]["properties"].as_object()?;
    let known = |names: &[&'static str]| {
        names
            .iter()
            .copied()
            .find(|name| properties.contains_key(*name))
    };
    let mut arguments = Map::new();
    if let Some(argument) = container_argument(tool) {
        arguments.insert(argument.to_owned(), container?.into());
    }
    if shape == Shape::Command {
        let argument = known(&COMMAND_ARGUMENTS)?;
        let is_list = allows(&properties[argument], "array");
        let command = if is_list {
            json!(["true"])
        } else {
            json!("true")
        };
        arguments.insert(argument.to_owned(), command);
        if properties.contains_key("wait_s") {
            arguments.insert("wait_s".to_owned(), json!(20));
        }
    } else {
        arguments.insert(known(&CODE_ARGUMENTS)?.to_owned(), "print(1)".into());
        let needs = tool["inputSchema"]["required"].as_array();
        if needs.is_some_and(|needs| needs.contains(&json!("language"))) {
            arguments.insert("language".to_owned(), "python".into());
        }
    }
    Some(arguments.into())
}

/// The argument by which a tool must be told a container.
fn container_argument(tool: &Value) -> Option<&'static str> {
    let needed = tool["inputSchema"]["required"].as_array()?;
    let is_needed = |name: &&str| needed.contains(&json!(name));
    CONTAINER_ARGUMENTS.into_iter().find(is_needed)
}

/// Whether a schema takes values of a type, also as one of several.
fn allows(schema: &Value, kind: &str) -> bool {
    let is_kind = |one: &Value| {
        one["type"] == kind
            || one["type"]
                .as_array()
                .is_some_and(|all| all.contains(&json!(kind)))
    };
    let several = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    is_kind(schema) || several.is_some_and(|all| all.iter().any(is_kind))
}

fn is_named(tool: &Value, names: &[&str]) -> bool {
    let own = text(&tool["name"]).to_lowercase();
    names.iter().any(|name| own.contains(name))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A server as a child process: JSON lines in and out.
struct Connection {
    process: Child,
    /// Closed first, which is how a server is told to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
}

impl Connection {
    fn start(words: &[String]) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no program")?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().context("its stdout")?);
        let mut this = Self {
            process,
            stdin,
            stdout,
            last_id: 0,
        };
        this.initialize().with_context(|| words.join(" "))?;
        Ok(this)
    }

    fn initialize(&mut self) -> Result<()> {
        let client = json!({"name": "bench", "version": "1"});
        let parameters =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        self.request("initialize", &parameters)?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    }

    /// Makes a container; returns what it is called.
    fn spawn(&mut self, tool: &str) -> Result<String> {
        let answer = self.call(tool, &json!({}))?;
        let made = &answer["structuredContent"];
        let mut names = CONTAINER_ARGUMENTS.iter().chain(&["id", "result"]);
        let found = names.find_map(|name| made[*name].as_str());
        let said = found.or(answer["content"][0]["text"].as_str());
        Ok(said.context("it names no container")?.trim().to_owned())
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let parameters = json!({"name": tool, "arguments": arguments});
        let result = self.request("tools/call", &parameters)?;
        ensure!(result["isError"] != json!(true), "{tool}: {result}");
        Ok(result)
    }

    fn request(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}))?;
        loop {
            let mut line = String::new();
            let count = self.stdout.read_line(&mut line)?;
            ensure!(count > 0, "the server ended");
            // Some write lines of their own.
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if message["id"] == json!(id) && message["method"].is_null() {
                if !message["error"].is_null() {
                    bail!("{method}: {}", message["error"]);
                }
                return Ok(message["result"].take());
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().context("its stdin")?;
        stdin.write_all(&line)?;
        Ok(stdin.flush()?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, [properties, required]: [Value; 2]) -> Value {
        json!({"name": name, "inputSchema": {"properties": properties, "required": required}})
    }

    #[test]
    fn tools_are_known_by_their_names_and_their_schemas() {
        let tools = [
            tool("read_file", [json!({"path": {}}), json!(["path"])]),
            tool(
                "sandbox_exec",
                [
                    json!({"container_id": {}, "commands": {"type": "array"}}),
                    json!(["container_id", "commands"]),
                ],
            ),
            tool(
                "run_python_code",
                [
                    json!({"python_code": {"type": "string"}}),
                    json!(["python_code"]),
                ],
            ),
            tool(
                "execute_code",
                [
                    json!({"code": {}, "language": {}}),
                    json!(["code", "language"]),
                ],
            ),
        ];
        let found = calls("other", &tools, Some("c1"));
        let found: Vec<_> = found
            .iter()
            .map(|call| (call.row.as_str(), call.arguments.clone()))
            .collect();
        assert_eq!(
            found,
            [
                (
                    "other, run_python_code print(1)",
                    json!({"python_code": "print(1)"})
                ),
                (
                    "other, execute_code print(1)",
                    json!({"code": "print(1)", "language": "python"})
                ),
                (
                    "other, sandbox_exec true",
                    json!({"container_id": "c1", "commands": ["true"]})
                ),
            ]
        );
        // Without a container there is nothing to run the command in.
        assert_eq!(calls("other", &tools, None).len(), 2);
    }

    #[test]
    fn a_command_may_be_a_text_or_a_list() {
        for (schema, expected) in [
            (json!({"type": "string"}), json!("true")),
            (
                json!({"anyOf": [{"type": "string"}, {"type": "array"}]}),
                json!(["true"]),
            ),
            (json!({"type": ["array", "null"]}), json!(["true"])),
        ] {
            let tools = [tool(
                "run_command",
                [json!({"command": schema}), json!(["command"])],
            )];
            assert_eq!(calls("x", &tools, None)[0].arguments["command"], expected);
        }
    }

    #[test]
    fn a_peer_has_a_name_and_a_command() {
        let peer = PeerCommand::parse("other=python3 server.py --fast").expect("it is right");
        assert_eq!(peer.words, ["python3", "server.py", "--fast"]);
        for wrong in ["other", "=python3", "other="] {
            assert!(PeerCommand::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_real_server_is_measured() {
        // The interpreter's own library is enough for a server of one tool.
        let server = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "execute_code", "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}}}]},
    }
    if asked["method"] == "tools/call":
        exec(asked["params"]["arguments"]["code"].replace("print(1)", "ran = 1"))
    result = answers.get(asked["method"], {"content": [{"type": "text", "text": "1"}]})
    print("not JSON"); print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;
        let words = ["/usr/bin/python3", "-c", server]
            .map(str::to_owned)
            .to_vec();
        let command = PeerCommand::new("small", words).expect("it is right");
        let mut peer = Peer::start(&command).expect("it starts");
        let mut called = Vec::new();
        peer.each(|row, call| {
            called.push(row.to_owned());
            call()
        })
        .expect("it answers");
        assert_eq!(called, ["small, execute_code print(1)"]);
    }
}
