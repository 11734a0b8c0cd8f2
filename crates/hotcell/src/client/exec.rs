//! `hotcell exec`: runs a command in a container of the running server.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_domain::{ExecEnd, ExecStatus, NotStarted};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connection::Server;
use super::output::{finish, is_broken_pipe};
use super::poll::{End, Reader};
use super::{print_json, stdin};
use crate::cli::ExecArgs;
use crate::exit;
use crate::signals::{SignalRequest, Signals, Stop};
use crate::terminal::{self, OutputSink, RawTerminal, Screen, plain};

#[derive(Deserialize)]
struct StartedExec {
    exec_id: String,
}

/// Starts the command and waits until it has ended.
pub(super) async fn exec(arguments: &ExecArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let signals = Signals::listen()?;
    let started: StartedExec = server.call("exec_start", request(arguments)?).await?;
    let exec = Exec {
        server,
        id: started.exec_id,
        stop: Arc::new(Stop::default()),
    };
    let raw = arguments.tty.then(RawTerminal::enter);
    if arguments.tty {
        exec.resize().await;
    }
    let stdin = tokio::spawn(stdin::pass_on(exec.server.clone(), exec.id.clone()));
    let listener = tokio::spawn(exec.clone().obey(signals));
    // With --tty, escape sequences of the container's terminal are meant for ours.
    let screen = || Screen::new(arguments.raw || arguments.tty);
    let mut sink = OutputSink::new((!arguments.json).then(screen));
    let end = exec.until_end(&mut sink).await;
    stdin.abort();
    listener.abort();
    drop(raw);
    let end = end?;
    finish(&mut sink).await?;
    report(end, sink, &exec.stop).await
}

/// A running exec that we started.
#[derive(Clone)]
struct Exec {
    server: Server,
    id: String,
    stop: Arc<Stop>,
}

impl Exec {
    async fn until_end(&self, sink: &mut OutputSink) -> Result<End> {
        let mut reader = Reader::new(self.server.clone(), self.id.clone());
        loop {
            let mut polled = reader.next(true).await.context("follow the command")?;
            for message in polled.read_messages()? {
                match message.write_to(sink).await {
                    Ok(()) => {}
                    Err(error) if is_broken_pipe(&error) => {
                        *sink = OutputSink::Nowhere;
                        tokio::spawn(self.clone().end(exit::BROKEN_PIPE));
                    }
                    Err(error) => return Err(error),
                }
            }
            if polled.complete {
                return Ok(polled.end);
            }
        }
    }

    /// Forwards signals that we receive.
    async fn obey(self, mut signals: Signals) {
        loop {
            match signals.next().await {
                SignalRequest::Stop(number) => {
                    tokio::spawn(self.clone().end(number));
                }
                SignalRequest::Resize => self.resize().await,
            }
        }
    }

    /// Ends all its processes: gracefully the first time, at once the second.
    async fn end(self, signal: u8) {
        let answer = if self.stop.ask(signal) {
            self.call("exec_cancel", json!({})).await
        } else {
            self.call("exec_input", json!({ "signal": "KILL" })).await
        };
        if let Err(error) = answer {
            tracing::debug!(%error, "the command could not be ended");
        }
    }

    /// Fails without a terminal, which is fine.
    async fn resize(&self) {
        let size = terminal::size();
        let arguments = json!({ "rows": size.rows, "cols": size.cols });
        let _ = self.call("exec_input", arguments).await;
    }

    async fn call(&self, tool: &'static str, mut arguments: Value) -> Result<Value> {
        arguments["exec_id"] = Value::from(self.id.as_str());
        self.server.call(tool, arguments).await
    }
}

fn request(arguments: &ExecArgs) -> Result<Value> {
    let mut request = json!({
        "container_id": arguments.container,
        "cmd": arguments.command,
        "cwd": arguments.cwd,
        "env": environment(arguments)?,
        "tty": arguments.tty,
    });
    if let Some(timeout) = arguments.timeout {
        request["timeout_s"] = timeout.as_secs_f64().into();
    }
    Ok(request)
}

fn environment(arguments: &ExecArgs) -> Result<Map<String, Value>> {
    let mut env = Map::new();
    if arguments.tty {
        let term = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
        env.insert("TERM".to_owned(), term.into());
    }
    for variable in &arguments.env {
        let (name, value) = if let Some((name, value)) = variable.split_once('=') {
            (name, value.to_owned())
        } else {
            let value = std::env::var(variable);
            let value = value.with_context(|| format!("{variable} is not set here as text"))?;
            (variable.as_str(), value)
        };
        env.insert(name.to_owned(), value.into());
    }
    Ok(env)
}

/// Prints how it ended; returns our exit code.
async fn report(end: End, sink: OutputSink, stop: &Stop) -> Result<ExitCode> {
    let code = code(&end, stop.by());
    if let Some(captured) = sink.captured() {
        print_json(&json!({
            "status": end.status,
            "exit_code": code,
            "signal": end.signal,
            "reason": end.reason,
            "stdout": String::from_utf8_lossy(&captured.stdout),
            "stderr": String::from_utf8_lossy(&captured.stderr),
            "truncated_bytes": captured.dropped + end.truncated_bytes,
            "usage": end.usage,
        }))
        .await?;
    }
    if let Some(sentence) = sentence(&end) {
        eprintln!("hotcell: {}", plain(&sentence));
    }
    Ok(ExitCode::from(code))
}

/// Our exit code. An unknown status comes from a newer server.
fn code(end: &End, stopped_by: Option<u8>) -> u8 {
    let end = ExecEnd {
        status: ExecStatus::parse(&end.status).unwrap_or(ExecStatus::Failed),
        exit_code: end.exit_code,
        signal: end.signal,
        reason: None,
        not_started: end.not_started.as_deref().map(not_started),
        usage: None,
    };
    exit::code(&end, stopped_by)
}

fn not_started(word: &str) -> NotStarted {
    NotStarted::parse(word).unwrap_or(NotStarted::Other)
}

fn sentence(end: &End) -> Option<String> {
    match (end.status.as_str(), &end.reason) {
        ("succeeded", _) | ("failed", None) => None,
        (_, Some(reason)) => Some(reason.clone()),
        (status, None) => Some(status.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(end: Value) -> u8 {
        code(&serde_json::from_value(end).expect("an end"), None)
    }

    #[test]
    fn what_was_not_started_exits_as_in_a_shell_whatever_the_sentence_is() {
        for (cause, expected) in [
            (json!("no_program"), exit::NOT_FOUND),
            (json!("not_executable"), exit::NOT_EXECUTABLE),
            (json!("other"), exit::NOT_EXECUTABLE),
            (Value::Null, exit::FAILED),
        ] {
            for reason in ["there is no program `x` in the container", "es fehlt"] {
                let end = json!({ "status": "failed", "reason": reason, "not_started": cause });
                assert_eq!(code_of(end), expected, "{cause}: {reason}");
            }
        }
    }
}
