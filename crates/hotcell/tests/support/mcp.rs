//! A small MCP client: JSON-RPC by hand, over a pipe, a socket or HTTP. It checks the invariants
//! of every reply, so no test has to.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::home::Home;
use super::http::Http;
use super::{deadline, server};

/// The last protocol version with sessions.
pub(crate) const LEGACY: &str = "2025-11-25";

/// The first protocol version without sessions.
pub(crate) const STATELESS: &str = "2026-07-28";

/// The extension that represents a running exec as a task.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client. It returns handles and errors exactly as the server wrote them.
pub(crate) struct Client {
    wire: Wire,
    last_id: u64,
    /// Notifications received while waiting for a reply.
    pub notifications: Vec<Value>,
}

enum Wire {
    Lines(Lines),
    Http {
        http: Http,
        session: Option<String>,
        version: &'static str,
    },
}

/// One message per line.
struct Lines {
    /// The server process and its log, if this client started it.
    child: Option<(Child, Receiver<String>)>,
    write: Option<Box<dyn Write + Send>>,
    read: Receiver<Value>,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "arguments are written where they are passed"
)]
impl Client {
    /// Starts a server of its own on stdio.
    pub(crate) fn stdio(home: &Home, arguments: &[&str]) -> Self {
        Self::stdio_as(home, arguments, LEGACY)
    }

    /// The same, in another version of the protocol.
    pub(crate) fn stdio_as(home: &Home, arguments: &[&str], version: &'static str) -> Self {
        let mut child = home
            .command(&["serve", "--transport", "stdio"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let write = child.stdin.take().expect("its stdin is a pipe");
        let read = messages(child.stdout.take().expect("its stdout is a pipe"));
        let log = server::lines(child.stderr.take().expect("its stderr is a pipe"));
        let wire = Wire::Lines(Lines {
            child: Some((child, log)),
            write: Some(Box::new(write)),
            read,
        });
        Self::greeted_with(wire, json!({}), version)
    }

    /// Connects to the socket in the state directory.
    pub(crate) fn socket(home: &Home) -> Self {
        let stream = UnixStream::connect(home.path().join("hotcell.sock"));
        let stream = stream.expect("a server listens there");
        let read = messages(stream.try_clone().expect("a second handle"));
        Self::greeted(Wire::Lines(Lines {
            child: None,
            write: Some(Box::new(stream)),
            read,
        }))
    }

    /// Streamable HTTP with a session.
    pub(crate) fn http(url: &str) -> Self {
        Self::http_as(url, LEGACY)
    }

    /// The same, in another version of the protocol.
    pub(crate) fn http_as(url: &str, version: &'static str) -> Self {
        let wire = Wire::Http {
            http: Http::connect(url),
            session: None,
            version,
        };
        Self::greeted_with(wire, json!({}), version)
    }

    /// Streamable HTTP with a session and a bearer token.
    pub(crate) fn http_by_token(url: &str, token: &str) -> Self {
        let wire = Wire::Http {
            http: Http::connect(url).with_token(token),
            session: None,
            version: LEGACY,
        };
        Self::greeted(wire)
    }

    /// Streamable HTTP with a session; a long command may be answered with a task.
    pub(crate) fn taking_tasks(url: &str) -> Self {
        Self::taking_tasks_on(Http::connect(url))
    }

    /// The same, with a bearer token.
    pub(crate) fn taking_tasks_by_token(url: &str, token: &str) -> Self {
        Self::taking_tasks_on(Http::connect(url).with_token(token))
    }

    fn taking_tasks_on(http: Http) -> Self {
        let wire = Wire::Http {
            http,
            session: None,
            version: LEGACY,
        };
        Self::greeted_with(wire, json!({ "extensions": { TASKS: {} } }), LEGACY)
    }

    /// Streamable HTTP without a session.
    pub(crate) fn stateless(url: &str) -> Self {
        Self {
            wire: Wire::Http {
                http: Http::connect(url),
                session: None,
                version: STATELESS,
            },
            last_id: 0,
            notifications: Vec::new(),
        }
    }

    fn greeted(wire: Wire) -> Self {
        Self::greeted_with(wire, json!({}), LEGACY)
    }

    fn greeted_with(wire: Wire, capabilities: Value, version: &str) -> Self {
        let mut client = Self {
            wire,
            last_id: 0,
            notifications: Vec::new(),
        };
        let greeting = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "0" },
        });
        let answer = client.request("initialize", greeting).expect("it greets");
        assert_eq!(answer["serverInfo"]["name"], "hotcell", "{answer}");
        assert_eq!(answer["protocolVersion"], version, "{answer}");
        client.notify("notifications/initialized");
        client
    }

    /// Calls a tool that must succeed; returns its structured content.
    pub(crate) fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must fail; returns the error code.
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone());
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        let content = &result["structuredContent"];
        let message = content["message"].as_str().expect("a sentence");
        assert!(
            !message.contains("/run/containers"),
            "a host path: {message}"
        );
        content["code"].as_str().expect("a code").to_owned()
    }

    /// Polls an exec until it ends; returns the last poll. Passes each message to `take` and checks
    /// that their numbers have no gap.
    pub(crate) fn follow(&mut self, exec: &Value, mut take: impl FnMut(&Value)) -> Value {
        let mut last: u64 = 0;
        loop {
            let poll = json!({ "exec_id": exec, "after_seq": last, "wait_s": 30 });
            let polled = self.ok("exec_poll", poll);
            for message in polled["messages"].as_array().expect("a list") {
                last += 1;
                assert_eq!(message["seq"], last, "a gap: {message}");
                take(message);
            }
            assert_eq!(polled["next_seq"], last, "{polled}");
            if polled["complete"] == true {
                return polled;
            }
        }
    }

    /// Calls a tool; returns the whole result.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params)
            .unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Sends a request without waiting for the reply.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(message);
        id
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let early = self.notifications.iter().position(|one| one["id"] == id);
            let mut message = match &mut self.wire {
                // It arrived while we waited for another reply.
                _ if early.is_some() => self.notifications.remove(early.unwrap_or_default()),
                Wire::Lines(lines) => lines.next(),
                Wire::Http { http, session, .. } => {
                    let message = http.next_message();
                    if let Some(given) = http.header("mcp-session-id") {
                        *session = Some(given.to_owned());
                    }
                    message
                }
            };
            if message["id"] != id {
                self.notifications.push(message);
                continue;
            }
            if let Wire::Http { http, .. } = &mut self.wire {
                http.read_whole();
            }
            return match message.get_mut("error") {
                Some(error) => Err(error.take()),
                None => Ok(message["result"].take()),
            };
        }
    }

    /// Sends a batch; returns the replies.
    pub(crate) fn batch(&mut self, messages: Value) -> Value {
        match &mut self.wire {
            Wire::Lines(lines) => {
                lines.send(&messages);
                lines.next()
            }
            Wire::Http { http, session, .. } => {
                let session = session.clone().map(|session| ("Mcp-Session-Id", session));
                let headers: Vec<_> = session.into_iter().collect();
                http.post("/mcp", &headers, &messages.to_string());
                http.next_message()
            }
        }
    }

    /// Waits for a notification with matching parameters. Works only on a pipe.
    pub(crate) fn wait_for_notification(&mut self, is_it: impl Fn(&Value) -> bool) {
        while !self.notifications.iter().any(|one| is_it(&one["params"])) {
            let message = self.lines().next();
            assert!(message.get("id").is_none(), "an answer: {message}");
            self.notifications.push(message);
        }
    }

    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id });
        let method = "notifications/cancelled";
        self.write(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    pub(crate) fn notify(&mut self, method: &str) {
        self.write(json!({ "jsonrpc": "2.0", "method": method }));
    }

    fn write(&mut self, mut message: Value) {
        match &mut self.wire {
            Wire::Lines(lines) => lines.send(&message),
            Wire::Http {
                http,
                session,
                version,
            } => {
                let mut headers = Vec::new();
                // Older clients do not send this header.
                if *version >= "2025-06-18" {
                    headers.push(("MCP-Protocol-Version", (*version).to_owned()));
                }
                if let Some(session) = session {
                    headers.push(("Mcp-Session-Id", session.clone()));
                }
                if *version == STATELESS {
                    let method = message["method"].as_str().unwrap_or_default();
                    headers.push(("Mcp-Method", method.to_owned()));
                    if let Some(name) = message["params"]["name"].as_str() {
                        headers.push(("Mcp-Name", name.to_owned()));
                    }
                    message["params"]["_meta"] = json!({
                        "io.modelcontextprotocol/protocolVersion": version,
                        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
                        "io.modelcontextprotocol/clientCapabilities": {},
                    });
                }
                let is_request = message.get("id").is_some();
                http.post("/mcp", &headers, &message.to_string());
                if !is_request {
                    http.read_whole();
                }
            }
        }
    }

    /// The session that the server gave.
    pub(crate) fn session(&self) -> Option<&str> {
        match &self.wire {
            Wire::Http { session, .. } => session.as_deref(),
            Wire::Lines(_) => None,
        }
    }

    /// Closes the server's stdin.
    pub(crate) fn close(&mut self) {
        self.lines().write = None;
    }

    /// Waits for a line of the server's log.
    pub(crate) fn wait_for_log(&mut self, words: &str) {
        server::wait_for(&self.server().1, words);
    }

    /// The server's log up to a line with these words.
    pub(crate) fn log_until(&mut self, words: &str) -> Vec<String> {
        server::log_until(&self.server().1, words)
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&mut self, signal: Signal) {
        server::send(self.server().0.id(), signal);
    }

    /// Closes the server's stdin and waits for its end.
    pub(crate) fn hang_up(mut self) -> ExitStatus {
        self.close();
        server::wait(&mut self.server().0)
    }

    fn server(&mut self) -> &mut (Child, Receiver<String>) {
        self.lines().child.as_mut().expect("it is ours")
    }

    fn lines(&mut self) -> &mut Lines {
        match &mut self.wire {
            Wire::Lines(lines) => lines,
            Wire::Http { .. } => panic!("it is no pipe"),
        }
    }
}

impl Lines {
    fn send(&mut self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        let write = self.write.as_mut().expect("it is open");
        write.write_all(line.as_bytes()).expect("it reads");
        write.flush().expect("it reads");
    }

    fn next(&mut self) -> Value {
        let until = Instant::now() + deadline();
        let left = until.saturating_duration_since(Instant::now());
        self.read.recv_timeout(left).expect("it answers in time")
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.write = None;
        if let Some((child, _)) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Every line must be one JSON message.
fn messages(from: impl Read + Send + 'static) -> Receiver<Value> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let message = serde_json::from_str(&line)
                .unwrap_or_else(|error| json!({ "not JSON": line, "error": error.to_string() }));
            // The test may have ended.
            let _ = send.send(message);
        }
    });
    receive
}
