//! `hotcell ps`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::print_json;
use super::table::{Column, table};
use crate::cli::PsArgs;
use crate::terminal;

/// Most pages of a list; nobody has more containers, including ended ones.
const PAGES_MAX: usize = 10_000;

#[derive(Deserialize)]
struct ContainerList {
    containers: Vec<Value>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Headings and fields; the owner is only shown with several principals.
const WITH_OWNER: [Column; 7] = [
    ("PRINCIPAL", "principal"),
    ("CONTAINER", "container_id"),
    ("ALIAS", "alias"),
    ("IMAGE", "image"),
    ("STATUS", "status"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
];

pub(super) async fn ps(arguments: &PsArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let containers = list(&server, arguments.all).await?;
    if arguments.json {
        print_json(&json!({ "containers": containers })).await?;
    } else {
        let columns = if arguments.all {
            &WITH_OWNER[..]
        } else {
            &WITH_OWNER[1..]
        };
        let table = table(columns, &containers);
        let written = terminal::write(tokio::io::stdout(), table.as_bytes()).await;
        written.context("write to stdout")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All pages, oldest first.
async fn list(server: &Server, all: bool) -> Result<Vec<Value>> {
    let mut asked = json!({ "include_stopped": all, "all": all });
    let mut pages = Vec::new();
    for _ in 0..PAGES_MAX {
        let page: ContainerList = server.call("list_containers", asked.clone()).await?;
        pages.push(page.containers);
        match page.next_cursor {
            Some(next) => asked["cursor"] = next.into(),
            None => break,
        }
    }
    Ok(pages.into_iter().rev().flatten().collect())
}
