//! `hotcell memory`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use hotcell_mcp::{MEMORY_METHOD, MemoryKind, MemoryRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::print_json;
use super::table::{Column, table};
use crate::cli::{MemoryArgs, MemoryCommand, MemoryLsArgs, MemoryRmArgs};
use crate::terminal::{self, plain};

const COLUMNS: [Column; 5] = [
    ("KIND", "kind"),
    ("NAME", "name"),
    ("VERSION", "version"),
    ("BYTES", "bytes"),
    ("UPDATED", "updated_at"),
];

#[derive(Deserialize)]
struct Listed {
    entries: Vec<Value>,
}

#[derive(Deserialize)]
struct Removed {
    removed: bool,
}

pub(super) async fn memory(arguments: &MemoryArgs) -> Result<ExitCode> {
    match &arguments.command {
        MemoryCommand::Ls(arguments) => ls(arguments).await,
        MemoryCommand::Rm(arguments) => rm(arguments).await,
    }
}

async fn ls(arguments: &MemoryLsArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let prefix = arguments.prefix.clone();
    let request = serde_json::to_value(MemoryRequest::List { prefix })?;
    let Listed { entries } = server.request(MEMORY_METHOD, Some(request)).await?;
    if arguments.json {
        print_json(&json!({ "entries": entries })).await?;
    } else {
        let table = table(&COLUMNS, &entries);
        let written = terminal::write(tokio::io::stdout(), table.as_bytes()).await;
        written.context("write to stdout")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes all of them, even if one is not there.
async fn rm(arguments: &MemoryRmArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let (kind, what) = if arguments.tool {
        (MemoryKind::Tool, "saved tool")
    } else {
        (MemoryKind::Memory, "memory")
    };
    let mut code = ExitCode::SUCCESS;
    let mut told = Vec::new();
    for name in &arguments.names {
        let request = MemoryRequest::Remove {
            kind,
            name: name.clone(),
        };
        let request = serde_json::to_value(request)?;
        let Removed { removed } = server.request(MEMORY_METHOD, Some(request)).await?;
        if !removed {
            eprintln!("hotcell: there is no {what} `{}`", plain(name));
            code = ExitCode::FAILURE;
        }
        told.push(json!({ "name": name, "removed": removed }));
    }
    if arguments.json {
        print_json(&json!({ "entries": told })).await?;
    }
    Ok(code)
}
