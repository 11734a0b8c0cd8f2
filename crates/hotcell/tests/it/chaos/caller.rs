//! A client that expects its server to die at any moment.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::support::deadline;
use crate::support::home::Home;
use crate::support::mcp::LEGACY;

/// A connection to the socket of a server.
pub(crate) struct Caller {
    write: UnixStream,
    read: BufReader<UnixStream>,
    last_id: u64,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It succeeded: the structured content.
    Done(Value),
    /// It failed: code and message.
    Refused(Value),
    /// The server is gone, and it is unknown whether the call took effect.
    Gone,
}

impl Caller {
    /// Connects, if there is a server.
    pub(crate) fn connect(home: &Home) -> Option<Self> {
        let write = UnixStream::connect(home.path().join("hotcell.sock")).ok()?;
        write.set_read_timeout(Some(deadline())).ok()?;
        let read = BufReader::new(write.try_clone().ok()?);
        let mut caller = Self {
            write,
            read,
            last_id: 0,
        };
        let greeting = json!({ "protocolVersion": LEGACY, "capabilities": {},
            "clientInfo": { "name": "chaos", "version": "0" } });
        caller.request("initialize", &greeting)?;
        caller.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Some(caller)
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let call = json!({ "name": tool, "arguments": arguments });
        match self.request("tools/call", &call) {
            None => Answer::Gone,
            Some(answer) if answer.get("error").is_some() => Answer::Refused(answer),
            Some(mut answer) => {
                let content = answer["result"]["structuredContent"].take();
                if answer["result"]["isError"] == true {
                    return Answer::Refused(content);
                }
                Answer::Done(content)
            }
        }
    }

    /// Calls a tool of a running server, which must succeed.
    pub(crate) fn ok(&mut self, tool: &str, arguments: &Value) -> Value {
        match self.call(tool, arguments) {
            Answer::Done(content) => content,
            other @ (Answer::Refused(_) | Answer::Gone) => panic!("{tool} {arguments}: {other:?}"),
        }
    }

    /// Polls an exec to its end: all of its output, and the last answer.
    pub(crate) fn follow(&mut self, exec: &str) -> (String, Value) {
        let (mut text, mut last) = (String::new(), 0);
        loop {
            let poll = json!({ "exec_id": exec, "after_seq": last, "wait_s": 20 });
            let polled = self.ok("exec_poll", &poll);
            for message in polled["messages"].as_array().unwrap() {
                text.push_str(message["data"].as_str().unwrap());
            }
            last = polled["next_seq"].as_u64().unwrap();
            if polled["complete"] == true {
                return (text, polled);
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            // A line without its end is not an answer.
            if self.read.read_line(&mut line).ok()? == 0 || !line.ends_with('\n') {
                return None;
            }
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return Some(message);
            }
        }
    }

    fn send(&mut self, message: &Value) -> Option<()> {
        self.write.write_all(format!("{message}\n").as_bytes()).ok()
    }
}
