//! `kill`: ends a container and removes everything it has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct Kill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// At once, without TERM and grace
    #[serde(default)]
    force: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    status: &'static str,
}

impl Tool for Kill {
    const NAME: &'static str = "kill";
    const DESCRIPTION: &'static str =
        "End a container and remove it with its execs and files, for good.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let killing = server.service().kill(&call.caller, &target, params.force);
        call.attend("ending the container", killing).await??;
        let status = hotcell_domain::Phase::Stopped.as_str();
        let text = format!("container {target} is {status} and removed");
        Ok(Answer::of(text, Output { status }))
    }
}
