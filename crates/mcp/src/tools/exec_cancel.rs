//! `exec_cancel`: ends a command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct ExecCancel;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// From `exec_start`
    exec_id: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    exec_id: String,
    status: &'static str,
    next_step: String,
}

impl Tool for ExecCancel {
    const NAME: &'static str = "exec_cancel";
    const DESCRIPTION: &'static str = "End a command with everything it started (TERM, 3 s, KILL). exec_poll still reads its output.";
    const HINTS: Hints = Hints::DESTROYS_ONCE;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let id = super::exec_id(&params.exec_id)?;
        let cancelling = server.service().exec_cancel(&call.caller, &id);
        let status = call
            .attend("ending the command", cancelling)
            .await??
            .as_str();
        let exec_id = id.to_string();
        let next_step = format!("exec_poll with exec_id={id} reads what it wrote");
        let output = Output {
            exec_id,
            status,
            next_step,
        };
        // An exec that had ended by itself keeps its status.
        let text = format!("{id} {status}; {}", output.next_step);
        Ok(Answer::of(text, output))
    }
}
