//! `list_containers`: the caller's containers.

use hotcell_domain::ContainerId;
use hotcell_service::ContainerView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::container_view::{ContainerItem, line};
use super::paging::{ROWS_MAX, rows};
use super::{Answer, Hints, Tool, ToolError, paging};
use crate::Server;
use crate::call::Call;

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
    /// Rows of a page, the newest
    #[serde(default = "rows")]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    limit: u32,
    /// `next_cursor` of the page before
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    containers: Vec<ContainerItem>,
    /// Leads to older ones
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A container; `with_principal` if the list shows several principals.
fn item(view: &ContainerView, with_principal: bool) -> ContainerItem {
    let item = ContainerItem::from(view);
    if with_principal {
        return item.with_principal(&view.principal);
    }
    item
}

/// A container in one line.
fn text_of(view: &ContainerView, with_principal: bool) -> String {
    if with_principal {
        return format!("{}  of {}", line(view), view.principal);
    }
    line(view)
}

impl Tool for ListContainers {
    const NAME: &'static str = "list_containers";
    const DESCRIPTION: &'static str =
        "List your containers, oldest first. Older ones: pass next_cursor as cursor.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let parse = |id: &str| ContainerId::parse(id).ok();
        let page = paging::request(params.limit, params.cursor.as_deref(), parse)?;
        let (service, caller) = (server.service(), &call.caller);
        let listing = if params.all {
            let all = service.all_containers_page(caller, params.include_stopped, &page);
            all.await
                .map_err(|error| ToolError::from(error).with_hint("leave `all` out to see yours"))?
        } else {
            let own = service.containers_page(caller, params.include_stopped, &page);
            own.await?
        };
        let age = |view: &ContainerView| (view.created_unix_ms, view.id.clone());
        let fitted = paging::fit(listing, |view| item(view, params.all), age);
        let lines = fitted.rows.iter().map(|view| text_of(view, params.all));
        let mut text: Vec<String> = lines.collect();
        if text.is_empty() {
            text.push("no containers; spawn makes one".to_owned());
        }
        if let Some(next) = &fitted.next_cursor {
            text.insert(0, paging::next_step(next));
        }
        let output = Output {
            containers: fitted.items,
            next_cursor: fitted.next_cursor,
        };
        Ok(Answer::of(text.join("\n"), output))
    }
}
