//! `hotcell reload`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hotcell_mcp::{RELOAD_METHOD, ReloadReport};

use super::connection::Server;
use super::print_json;
use crate::cli::ReloadArgs;
use crate::terminal;

/// Makes the server read its configuration again, and prints the result.
pub(super) async fn reload(arguments: &ReloadArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let report: ReloadReport = server.request(RELOAD_METHOD, None).await?;
    if arguments.json {
        print_json(&serde_json::to_value(&report)?).await?;
        let is_done = report.error.is_none();
        return Ok(if is_done {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    if let Some(error) = report.error {
        bail!("nothing was changed: {error}");
    }
    let text = told(&report);
    terminal::write(tokio::io::stdout(), text.as_bytes())
        .await
        .context("write to stdout")?;
    Ok(ExitCode::SUCCESS)
}

fn told(report: &ReloadReport) -> String {
    let changed = match report.changed.as_slice() {
        [] => "reloaded; nothing that applies at once has changed\n".to_owned(),
        changed => format!("reloaded: {}\n", changed.join(", ")),
    };
    match report.needs_restart.as_slice() {
        [] => changed,
        settings => format!("{changed}needs a restart: {}\n", settings.join(", ")),
    }
}
