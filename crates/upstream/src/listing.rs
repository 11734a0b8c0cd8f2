//! What a server lists: tools, resources, prompts; page by page, within bounds.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bounds::{LIST_PAGES_MAX, LISTED_MAX};
use crate::connection::{Connection, Request};
use crate::definition::{Collector, Definitions};
use crate::error::UpstreamError;
use crate::handshake::Hello;
use crate::rpc::Params;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(alias = "tools", alias = "resources", alias = "prompts")]
    items: Option<Vec<Box<RawValue>>>,
    next_cursor: Option<String>,
}

/// All tools.
pub(crate) async fn tools(
    connection: &Arc<Connection>,
    hello: &Hello,
    timeout: Duration,
) -> Result<Definitions, UpstreamError> {
    let mut collector = Collector::default();
    if hello.has_tools {
        let is_cut = pages(connection, "tools/list", timeout, |item| {
            collector.add(item);
            !collector.is_full()
        });
        if is_cut.await? {
            collector.cut_off("the listing did not end");
        }
    }
    Ok(Definitions {
        title: hello.title.clone(),
        version: hello.version.clone(),
        instructions: hello.instructions.clone(),
        ..collector.finish()
    })
}

/// Everything of another kind, each as its server sent it.
pub(crate) async fn all(
    connection: &Arc<Connection>,
    method: &'static str,
    timeout: Duration,
) -> Result<Vec<Box<RawValue>>, UpstreamError> {
    let mut items = Vec::new();
    pages(connection, method, timeout, |item| {
        items.push(item.to_owned());
        items.len() < LISTED_MAX
    })
    .await?;
    Ok(items)
}

/// Hands each item to `take`, until that wants no more pages. Returns whether there were too many.
async fn pages(
    connection: &Arc<Connection>,
    method: &'static str,
    timeout: Duration,
    mut take: impl FnMut(&RawValue) -> bool,
) -> Result<bool, UpstreamError> {
    let mut cursor: Option<String> = None;
    for _ in 0..LIST_PAGES_MAX {
        let params = Params {
            cursor: cursor.as_deref(),
            ..Params::default()
        };
        let request = Request {
            method,
            params,
            progress: None,
            timeout,
        };
        let answer = connection
            .request(request)
            .await
            .map_err(|error| connection.described(error))?;
        let page: Page =
            serde_json::from_str(answer.get()).map_err(|_| malformed(connection, method))?;
        let mut wants_more = true;
        for item in page.items.unwrap_or_default() {
            wants_more = take(&item);
        }
        match page
            .next_cursor
            .filter(|next| !next.is_empty() && cursor.as_ref() != Some(next))
        {
            Some(next) if wants_more => cursor = Some(next),
            Some(_) | None => return Ok(false),
        }
    }
    Ok(true)
}

fn malformed(connection: &Connection, method: &str) -> UpstreamError {
    let server = connection.peer.server().clone();
    UpstreamError::Protocol {
        server,
        reason: format!("its answer to {method} is malformed"),
    }
}
