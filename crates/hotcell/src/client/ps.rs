//! `hotcell ps`.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::print_json;
use super::table::{Column, Fit, fitted, table};
use super::when::relative;
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
        let table = shown(columns, containers);
        let written = terminal::write(tokio::io::stdout(), table.as_bytes()).await;
        written.context("write to stdout")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fields that may be cut to fit the terminal.
const MAY_CUT: [&str; 3] = ["principal", "alias", "image"];

/// For people, times as they say them and no line longer than the terminal; for programs, everything.
fn shown(columns: &[Column], mut containers: Vec<Value>) -> String {
    let out = std::io::stdout();
    let Some(width) = terminal::columns(&out) else {
        return table(columns, &containers);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_unix_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    for container in &mut containers {
        for field in ["created_at", "expires_at"] {
            let said = container[field]
                .as_str()
                .and_then(|time| relative(time, now_unix_ms));
            if let Some(said) = said {
                container[field] = said.into();
            }
        }
    }
    let fit = Fit {
        width,
        may_cut: &MAY_CUT,
        has_colours: terminal::has_colours(&out),
    };
    fitted(columns, &containers, fit)
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
