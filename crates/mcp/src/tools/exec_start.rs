//! `exec_start`: runs a command.

use std::collections::BTreeMap;
use std::time::Duration;

use hotcell_domain::{Command, ExecId, Stdin, TerminalSize};
use hotcell_service::{Abandonment, ExecView, Poll, Start};
use schemars::JsonSchema;
use serde::Deserialize;

use super::exec_view::{Output, POLL_BYTES_DEFAULT};
use super::polling::{self, ExecWait};
use super::{Answer, Code, Hints, Tool, ToolError, arguments};
use crate::asking::{Attended, Ongoing};
use crate::call::Call;
use crate::{Server, task};

/// How long a client that accepts tasks waits for a direct answer.
const TASK_AFTER: Duration = Duration::from_secs(1);

pub(super) struct ExecStart;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    #[schemars(length(min = 1))]
    #[schemars(
        description = r#"Program and arguments, a word each, no shell: ["ls","-l"] or ["sh","-c","ls | wc"]"#
    )]
    cmd: Vec<String>,
    /// Directory
    #[serde(default = "workspace")]
    cwd: String,
    /// Variables
    #[serde(default)]
    #[schemars(extend("default" = null))]
    env: BTreeMap<String, String>,
    /// Only where the operator allows it
    #[serde(default)]
    as_root: bool,
    /// Ended after so many seconds
    #[serde(default = "ten_minutes")]
    #[schemars(range(max = 604_800))]
    timeout_s: f64,
    /// Same key within 24 h: same exec, run once
    idempotency_key: Option<String>,
    /// Text to read; then stdin is closed. Without it stdin is empty if `wait_s` > 0, else open for `exec_input`, as with tty
    stdin: Option<String>,
    /// Overrides that: true: `exec_input` may send (more), false: closed
    keep_stdin_open: Option<bool>,
    /// Run on a terminal
    #[serde(default)]
    tty: bool,
    /// Of the terminal, default 24
    #[schemars(range(min = 1, max = 65_535))]
    rows: Option<u16>,
    /// Of the terminal, default 80
    #[schemars(range(min = 1, max = 65_535))]
    cols: Option<u16>,
    /// Seconds to wait for the end
    #[serde(default)]
    #[schemars(range(min = 0, max = 50))]
    wait_s: f64,
}

impl Tool for ExecStart {
    const NAME: &'static str = "exec_start";
    const DESCRIPTION: &'static str = "Run a command. With wait_s=50 a short one is one call: its output and exit code come back as from exec_poll. \
        A longer one goes on: exec_poll its exec_id.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let wait = Duration::from_secs_f64(params.wait_s);
        let as_task = call.takes_tasks && wait > TASK_AFTER;
        let wait = if as_task { TASK_AFTER } else { wait };
        let attended = match &call.repeated {
            None => {
                let exec = start(server, params, wait, call).await?;
                polling::wait(server, call, exec).await?
            }
            Some(repeated) => {
                let is_meant = |exec: &ExecWait| exec.waiting.is_some();
                let resumed = Ongoing::resume(server, call, repeated, is_meant);
                resumed.ok_or_else(gone)?.attend(server, call).await?
            }
        };
        let exec = match attended {
            Attended::Asks(input) => return Ok(Answer::needs(input)),
            Attended::Ended(exec, ()) => exec,
        };
        let view = read(server, exec, call).await?;
        let task = (as_task && !view.status.is_final()).then(|| task::begun(&view));
        let answer = super::exec_answer(view, POLL_BYTES_DEFAULT as usize);
        Ok(match task {
            Some(task) => answer.with_task(task),
            None => answer,
        })
    }
}

/// Starts the exec. If the client cancels the call, the service decides whether the exec continues.
async fn start(
    server: &Server,
    params: Params,
    wait: Duration,
    call: &Call,
) -> Result<ExecWait, ToolError> {
    let target = super::container_ref(&params.container_id)?;
    let (abandonment, waiting) = Abandonment::new();
    let request = Start {
        key: arguments::key(params.idempotency_key.as_deref())?,
        command: params.command()?,
        abandonment,
    };
    let service = server.service();
    let id = service.exec_start(&call.caller, &target, request).await?;
    let poll = Poll {
        after_seq: 0,
        wait,
        bytes_max: POLL_BYTES_DEFAULT as usize,
        until_end: true,
    };
    Ok(ExecWait::new(server, call, id, poll, Some(waiting)))
}

async fn read(server: &Server, exec: ExecWait, call: &Call) -> Result<ExecView, ToolError> {
    let view = match polling::read(server, &exec.id, exec.poll, call).await {
        // The exec runs, and without this answer its id would be lost.
        Err(error) if error.code() == Code::ResourceExhausted => {
            unread(server, &exec.id, call).await?
        }
        read => read?,
    };
    if let Some(waiting) = exec.waiting {
        waiting.answered();
    }
    Ok(view)
}

/// The status of an exec without its output.
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

fn gone() -> ToolError {
    let message = "no command of yours waits for this decision: it waited for ten minutes at most, or the server was restarted";
    ToolError::new(Code::NotFound, message).with_hint(
        "call list_execs: the command may have run, or run still; exec_poll shows its output",
    )
}

impl Params {
    fn command(self) -> Result<Command, ToolError> {
        let refused = |error: hotcell_domain::CommandError| ToolError::invalid(error.to_string());
        let size = self.size()?;
        let stdin = stdin(&self);
        let mut command = Command::new(self.cmd).map_err(refused)?;
        command.set_cwd(&self.cwd).map_err(refused)?;
        command.set_timeout_s(self.timeout_s).map_err(refused)?;
        command.set_stdin(stdin).map_err(refused)?;
        command.env = arguments::env(&self.env)?;
        command.as_root = self.as_root;
        command.tty = self.tty;
        command.size = size;
        Ok(command)
    }

    /// The size of the terminal, if there is one.
    fn size(&self) -> Result<TerminalSize, ToolError> {
        let default = TerminalSize::default();
        if !self.tty && (self.rows.is_some() || self.cols.is_some()) {
            return Err(ToolError::invalid("`rows` and `cols` are of a terminal")
                .with_hint("pass tty=true with them, or leave them out"));
        }
        Ok(TerminalSize {
            rows: self.rows.unwrap_or(default.rows),
            cols: self.cols.unwrap_or(default.cols),
        })
    }
}

/// The mode of stdin. A caller that waits for the end cannot send anything meanwhile.
fn stdin(params: &Params) -> Stdin {
    let text = params.stdin.clone();
    let is_open = text.is_none() && (params.wait_s == 0.0 || params.tty);
    match (text, params.keep_stdin_open.unwrap_or(is_open)) {
        (Some(text), true) => Stdin::TextThenOpen(text),
        (Some(text), false) => Stdin::Text(text),
        (None, true) => Stdin::Open,
        (None, false) => Stdin::Empty,
    }
}

fn workspace() -> String {
    "/workspace".to_owned()
}

fn ten_minutes() -> f64 {
    600.0
}
