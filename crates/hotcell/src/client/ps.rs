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

#[derive(Deserialize)]
struct ContainerList {
    containers: Vec<Value>,
}

/// Headings and fields; the first only where several principals are shown.
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
    let asked = json!({ "include_stopped": arguments.all, "all": arguments.all });
    let listed: ContainerList = server.call("list_containers", asked).await?;
    if arguments.json {
        print_json(&json!({ "containers": listed.containers })).await?;
    } else {
        let columns = if arguments.all {
            &WITH_OWNER[..]
        } else {
            &WITH_OWNER[1..]
        };
        let table = table(columns, &listed.containers);
        let written = terminal::write(tokio::io::stdout(), table.as_bytes()).await;
        written.context("write to stdout")?;
    }
    Ok(ExitCode::SUCCESS)
}
