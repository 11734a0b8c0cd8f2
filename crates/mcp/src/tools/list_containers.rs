//! `list_containers`: the caller's containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{fitting, size};
use super::container_view::{ContainerItem, line};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

/// Containers in one answer, the newest ones.
const CONTAINERS_MAX: usize = 500;

pub(super) struct ListContainers;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Also those that ended within a day
    #[serde(default)]
    include_stopped: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    containers: Vec<ContainerItem>,
    /// Older ones that did not fit
    #[serde(skip_serializing_if = "is_zero")]
    left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
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
        let mut containers: Vec<(String, ContainerItem)> = newest
            .iter()
            .map(|view| (line(view), ContainerItem::from(view)))
            .collect();
        let first = fitting(containers.iter().map(|(_, listed)| size(listed)));
        containers.drain(..first);
        let left_out = views.len() - containers.len();
        let (mut text, containers): (Vec<String>, Vec<ContainerItem>) =
            containers.into_iter().unzip();
        if text.is_empty() {
            text.push("no containers; spawn makes one".to_owned());
        }
        if left_out > 0 {
            text.insert(0, format!("[{left_out} older ones are left out]"));
        }
        let output = Output {
            containers,
            left_out,
        };
        Ok(Answer::of(text.join("\n"), output))
    }
}
