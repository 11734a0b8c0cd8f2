//! `exec_start`: runs a command.

use std::collections::BTreeMap;
use std::time::Duration;

use hotcell_domain::{Command, ContainerRef, ExecId, Stdin};
use hotcell_service::{ExecView, Poll, Start};
use schemars::JsonSchema;
use serde::Deserialize;

use super::exec_view::POLL_BYTES_DEFAULT;
use super::{Answer, Code, Hints, Tool, ToolError, arguments};
use crate::call::Call;
use crate::{Server, task};

/// How long a client that takes tasks waits for the answer itself.
const TASK_AFTER: Duration = Duration::from_secs(1);

pub(super) struct ExecStart;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    container_id: String,
    #[schemars(length(min = 1))]
    #[schemars(description = r#"Program and arguments; no shell: for one, ["sh","-c","..."]"#)]
    cmd: Vec<String>,
    #[serde(default = "workspace")]
    cwd: String,
    #[serde(default)]
    #[schemars(extend("default" = null))]
    env: BTreeMap<String, String>,
    #[serde(default)]
    as_root: bool,
    #[serde(default = "ten_minutes")]
    timeout_s: f64,
    idempotency_key: Option<String>,
    /// Text it reads
    stdin: Option<String>,
    #[serde(default)]
    tty: bool,
    #[serde(default)]
    #[schemars(range(min = 0, max = 50))]
    wait_s: f64,
}

/// What a caller acts on first; the rest is as `exec_poll` tells it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct Output {
    exec_id: String,
    status: String,
    complete: bool,
    exit_code: Option<u8>,
    messages: Vec<serde_json::Map<String, serde_json::Value>>,
}

impl Tool for ExecStart {
    const NAME: &'static str = "exec_start";
    const DESCRIPTION: &'static str = "Run a command. With wait_s it waits for the end and returns what exec_poll would; a longer one goes on: poll its exec_id.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let wait = Duration::from_secs_f64(params.wait_s);
        let as_task = call.takes_tasks && wait > TASK_AFTER;
        let wait = if as_task { TASK_AFTER } else { wait };
        let view = start(server, &target, params, wait, call).await?;
        let task = (as_task && !view.status.is_final()).then(|| task::begun(&view));
        let answer = super::exec_answer(view);
        Ok(match task {
            Some(task) => answer.with_task(task),
            None => answer,
        })
    }
}

/// Starts it and waits. When the client gives up meanwhile, nobody will ever learn the
/// handle, so the exec is cancelled, unless a key leads back to it.
async fn start(
    server: &Server,
    target: &ContainerRef,
    params: Params,
    wait: Duration,
    call: &Call,
) -> Result<ExecView, ToolError> {
    let service = server.service();
    let key = arguments::key(params.idempotency_key.as_deref())?;
    let has_key = key.is_some();
    let command = params.command()?;
    let id = service
        .exec_start(&call.caller, target, Start { command, key })
        .await?;
    let polled = wait_for(server, &id, wait, call).await;
    let is_cancelled = matches!(&polled, Err(error) if error.code() == Code::Cancelled);
    if is_cancelled && !has_key {
        let _ = service.exec_cancel(&call.caller, &id).await;
    }
    polled
}

async fn wait_for(
    server: &Server,
    id: &ExecId,
    wait: Duration,
    call: &Call,
) -> Result<ExecView, ToolError> {
    let poll = Poll {
        after_seq: 0,
        wait,
        bytes_max: POLL_BYTES_DEFAULT as usize,
        until_end: true,
    };
    match super::polling::poll(server, id, poll, call).await {
        // It runs, and without its handle nobody could find it.
        Err(error) if error.code() == Code::ResourceExhausted => unread(server, id, call).await,
        polled => polled,
    }
}

/// How an exec is, without what it wrote.
async fn unread(server: &Server, id: &ExecId, call: &Call) -> Result<ExecView, ToolError> {
    let poll = Poll {
        after_seq: u64::MAX,
        wait: Duration::ZERO,
        bytes_max: 0,
        until_end: false,
    };
    let view = server.service().exec_poll(&call.caller, id, poll).await?;
    Ok(ExecView {
        next_seq: 0,
        is_complete: false,
        ..view
    })
}

impl Params {
    fn command(self) -> Result<Command, ToolError> {
        let refused = |error: hotcell_domain::CommandError| ToolError::invalid(error.to_string());
        let stdin = match self.stdin {
            Some(text) => Stdin::Text(text),
            None if self.wait_s > 0.0 && !self.tty => Stdin::Empty,
            None => Stdin::Open,
        };
        let mut command = Command::new(self.cmd).map_err(refused)?;
        command.set_cwd(&self.cwd).map_err(refused)?;
        command.set_timeout_s(self.timeout_s).map_err(refused)?;
        command.set_stdin(stdin).map_err(refused)?;
        command.env = arguments::env(&self.env)?;
        command.as_root = self.as_root;
        command.tty = self.tty;
        Ok(command)
    }
}

fn workspace() -> String {
    "/workspace".to_owned()
}

fn ten_minutes() -> f64 {
    600.0
}
