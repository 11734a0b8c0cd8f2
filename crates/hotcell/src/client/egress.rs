//! `hotcell egress pending`, `allow` and `deny`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use hotcell_mcp::{EGRESS_METHOD, EgressAnswer, EgressRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Server;
use super::print_json;
use super::table::{Column, table};
use crate::cli::{EgressAllowArgs, EgressDenyArgs, EgressPendingArgs, StateArgs};
use crate::terminal::{self, plain};

const COLUMNS: [Column; 6] = [
    ("ID", "id"),
    ("CONTAINER", "container_id"),
    ("PROFILE", "profile"),
    ("HOST", "host"),
    ("PORT", "port"),
    ("ASKED", "asked_at"),
];

#[derive(Deserialize)]
struct Questions {
    questions: Vec<Value>,
}

pub(super) async fn pending(arguments: &EgressPendingArgs) -> Result<ExitCode> {
    let questions = ask(&arguments.state, EgressRequest::Pending).await?;
    if arguments.json {
        print_json(&json!({ "questions": questions })).await?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&table(&COLUMNS, &questions)).await
}

pub(super) async fn allow(arguments: &EgressAllowArgs) -> Result<ExitCode> {
    let (verdict, told) = if arguments.once {
        (EgressAnswer::AllowOnce, "allowed once")
    } else {
        (EgressAnswer::Allow, "allowed")
    };
    let request = EgressRequest::Answer {
        target: arguments.target.clone(),
        verdict,
    };
    let answered = ask(&arguments.state, request).await?;
    tell(&answered, told, arguments.json).await
}

pub(super) async fn deny(arguments: &EgressDenyArgs) -> Result<ExitCode> {
    let request = EgressRequest::Answer {
        target: arguments.target.clone(),
        verdict: EgressAnswer::Deny,
    };
    let answered = ask(&arguments.state, request).await?;
    tell(&answered, "denied", arguments.json).await
}

async fn ask(state: &StateArgs, request: EgressRequest) -> Result<Vec<Value>> {
    let server = Server::connect(state).await?;
    let request = serde_json::to_value(request)?;
    let answered: Questions = server.request(EGRESS_METHOD, Some(request)).await?;
    Ok(answered.questions)
}

async fn tell(answered: &[Value], told: &str, is_json: bool) -> Result<ExitCode> {
    if is_json {
        print_json(&json!({ "questions": answered })).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let field = |question: &Value, name| plain(question[name].as_str().unwrap_or_default());
    let lines = answered.iter().map(|question| {
        let (host, container) = (field(question, "host"), field(question, "container_id"));
        format!("{told}: {host} for {container}\n")
    });
    print(&lines.collect::<String>()).await
}

async fn print(text: &str) -> Result<ExitCode> {
    let written = terminal::write(tokio::io::stdout(), text.as_bytes()).await;
    written.context("write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
