//! `list_containers`: the caller's containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::container_view::{Listed, line};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

/// Containers in one answer, the newest ones.
const CONTAINERS_MAX: usize = 500;

pub(super) struct ListContainers;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    #[serde(default)]
    include_stopped: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    containers: Vec<Listed>,
}

impl Tool for ListContainers {
    const NAME: &'static str = "list_containers";
    const DESCRIPTION: &'static str = "List your containers, oldest first.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let service = server.service();
        let views = service
            .containers(&call.caller, params.include_stopped)
            .await?;
        let newest = &views[views.len().saturating_sub(CONTAINERS_MAX)..];
        let mut text: Vec<String> = newest.iter().map(line).collect();
        if text.is_empty() {
            text.push("no containers; spawn makes one".to_owned());
        }
        let containers = newest.iter().map(Listed::from).collect();
        Ok(Answer::of(text.join("\n"), Output { containers }))
    }
}
