//! `exec_input`: sends input or a signal to a running command.

use bytes::Bytes;
use hotcell_domain::ExecId;
use hotcell_service::{Input, ServiceError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arguments::Encoding;
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct ExecInput;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// From `exec_start`
    exec_id: String,
    /// For stdin, at most 4 MiB
    data: Option<String>,
    /// Of data
    #[serde(default)]
    encoding: Encoding,
    /// Close stdin after data
    #[serde(default)]
    eof: bool,
    /// Sent to all its processes
    signal: Option<Signal>,
    /// With cols: the terminal's new size
    #[schemars(range(min = 1, max = 65_535))]
    rows: Option<u16>,
    /// With rows
    #[schemars(range(min = 1, max = 65_535))]
    cols: Option<u16>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Signal {
    Term,
    Kill,
    Int,
    Hup,
    Usr1,
    Usr2,
    Winch,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    exec_id: String,
    sent_bytes: usize,
    next_step: String,
}

impl Tool for ExecInput {
    const NAME: &'static str = "exec_input";
    const DESCRIPTION: &'static str =
        "Write to a running command's stdin, close it, signal it, or resize its tty.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let id = super::exec_id(&params.exec_id)?;
        let input = params.input()?;
        let sent_bytes = input.data.len();
        let sending = server.service().exec_input(&call.caller, &id, input);
        let sent = call.attend("the command reads", sending).await?;
        sent.map_err(|error| told(error, &id))?;
        let next_step = format!("exec_poll with exec_id={id} shows what it answers");
        let text = format!("sent {sent_bytes} bytes to {id}; {next_step}");
        let exec_id = id.to_string();
        Ok(Answer::of(
            text,
            Output {
                exec_id,
                sent_bytes,
                next_step,
            },
        ))
    }
}

/// An exec that accepts no input may still have unread output.
fn told(error: ServiceError, id: &ExecId) -> ToolError {
    let is_conflict = matches!(error, ServiceError::Conflict { .. });
    let error = ToolError::from(error);
    if !is_conflict {
        return error;
    }
    error.with_hint(format!(
        "exec_poll with exec_id={id} reads its output and status; exec_start runs it again"
    ))
}

impl Params {
    fn input(self) -> Result<Input, ToolError> {
        let resize = match (self.rows, self.cols) {
            (Some(rows), Some(cols)) => Some((rows, cols)),
            (None, None) => None,
            _ => return Err(ToolError::invalid("`rows` and `cols` go together")),
        };
        let is_empty = self.data.as_deref().is_none_or(str::is_empty);
        if is_empty && !self.eof && self.signal.is_none() && resize.is_none() {
            return Err(ToolError::invalid("there is nothing to send")
                .with_hint("give data, eof, signal, or rows and cols"));
        }
        let data = self
            .encoding
            .decode("data", self.data.unwrap_or_default())?;
        Ok(Input {
            resize,
            data: Bytes::from(data),
            eof: self.eof,
            signal: self.signal.map(Into::into),
        })
    }
}

impl From<Signal> for hotcell_service::Signal {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Term => Self::Term,
            Signal::Kill => Self::Kill,
            Signal::Int => Self::Int,
            Signal::Hup => Self::Hup,
            Signal::Usr1 => Self::Usr1,
            Signal::Usr2 => Self::Usr2,
            Signal::Winch => Self::Winch,
        }
    }
}
