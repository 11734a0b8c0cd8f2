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
    exec_id: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    #[schemars(skip)]
    exec_id: String,
    status: &'static str,
}

impl Tool for ExecCancel {
    const NAME: &'static str = "exec_cancel";
    const DESCRIPTION: &'static str =
        "End a command with everything it started (TERM, 3 s, KILL). Its output stays readable.";
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
        Ok(Answer::of(
            format!("{id} {status}"),
            Output { exec_id, status },
        ))
    }
}
