//! `hotcell ps`, `top`, `exec`, `logs`, `kill`, `forward`, `memory` and `egress`, for people: MCP clients of the running server,
//! over the socket in its state directory. They use the same tools as every client.

mod connection;
mod egress;
mod exec;
mod forward;
mod kill;
mod logs;
mod memory;
mod output;
mod poll;
mod ps;
mod reload;
mod stdin;
mod table;
mod top;
mod when;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

pub(crate) use self::connection::Server;
use crate::cli::{
    EgressAllowArgs, EgressDenyArgs, EgressPendingArgs, ExecArgs, ForwardArgs, KillArgs, LogsArgs,
    MemoryArgs, PsArgs, ReloadArgs, TopArgs,
};
use crate::terminal;

/// Lists containers.
pub(crate) fn ps(arguments: &PsArgs) -> Result<ExitCode> {
    block_on(ps::ps(arguments))
}

/// Shows the resource usage of containers and execs.
pub(crate) fn top(arguments: &TopArgs) -> Result<ExitCode> {
    block_on(top::top(arguments))
}

/// Runs a command in a container.
pub(crate) fn exec(arguments: &ExecArgs) -> Result<ExitCode> {
    block_on(exec::exec(arguments))
}

/// Shows the output of an exec.
pub(crate) fn logs(arguments: &LogsArgs) -> Result<ExitCode> {
    block_on(logs::logs(arguments))
}

/// Ends containers.
pub(crate) fn kill(arguments: &KillArgs) -> Result<ExitCode> {
    block_on(kill::kill(arguments))
}

/// Passes connections to a port of a container.
pub(crate) fn forward(arguments: &ForwardArgs) -> Result<ExitCode> {
    block_on(forward::forward(arguments))
}

/// Makes the server read its configuration again.
pub(crate) fn reload(arguments: &ReloadArgs) -> Result<ExitCode> {
    block_on(reload::reload(arguments))
}

/// Lists the connections that wait for an answer.
pub(crate) fn egress_pending(arguments: &EgressPendingArgs) -> Result<ExitCode> {
    block_on(egress::pending(arguments))
}

/// Lets containers reach a host.
pub(crate) fn egress_allow(arguments: &EgressAllowArgs) -> Result<ExitCode> {
    block_on(egress::allow(arguments))
}

/// Refuses a host.
pub(crate) fn egress_deny(arguments: &EgressDenyArgs) -> Result<ExitCode> {
    block_on(egress::deny(arguments))
}

/// Lists and removes what scripts remember.
pub(crate) fn memory(arguments: &MemoryArgs) -> Result<ExitCode> {
    block_on(memory::memory(arguments))
}

pub(crate) fn block_on(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    // Two threads: one may be blocked writing to a slow reader while the other waits for Ctrl-C.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let outcome = runtime.block_on(work);
    // A read of our stdin cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    outcome
}

/// Prints a JSON value as one line to stdout.
async fn print_json(value: &Value) -> Result<()> {
    let mut line = escaped(&value.to_string());
    line.push('\n');
    terminal::write(tokio::io::stdout(), line.as_bytes())
        .await
        .context("write to stdout")
}

/// Escapes 8-bit control characters, which JSON leaves as they are and a terminal may obey. They
/// can only occur in strings, where they can be escaped.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_control_character_and_means_the_same() {
        let value = serde_json::json!({ "data": "a\u{9b}6n\x1b\x7f\u{e4}\n" });
        let text = escaped(&value.to_string());
        assert!(!text.contains(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }
}
