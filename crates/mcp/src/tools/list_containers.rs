//! `list_containers`: the caller's containers.

use hotcell_service::ContainerView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{fitting, size};
use super::container_view::{ContainerItem, line};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

/// The most containers in one answer; the newest.
const CONTAINERS_MAX: usize = 500;

pub(super) struct ListContainers;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Also those that ended within a day
    #[serde(default)]
    include_stopped: bool,
    /// Operator only: everybody's
    #[serde(default)]
    all: bool,
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

/// A container in both renderings, `with_principal` where several are shown.
fn listed(view: &ContainerView, with_principal: bool) -> (String, ContainerItem) {
    let item = ContainerItem::from(view);
    if with_principal {
        let line = format!("{}  of {}", line(view), view.principal);
        return (line, item.with_principal(&view.principal));
    }
    (line(view), item)
}

impl Tool for ListContainers {
    const NAME: &'static str = "list_containers";
    const DESCRIPTION: &'static str = "List your containers, oldest first.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let service = server.service();
        let views = if params.all {
            let all = service.all_containers(&call.caller, params.include_stopped);
            all.await
                .map_err(|error| ToolError::from(error).with_hint("leave `all` out to see yours"))?
        } else {
            let own = service.containers(&call.caller, params.include_stopped);
            own.await?
        };
        let newest = &views[views.len().saturating_sub(CONTAINERS_MAX)..];
        let mut containers: Vec<(String, ContainerItem)> =
            newest.iter().map(|view| listed(view, params.all)).collect();
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
