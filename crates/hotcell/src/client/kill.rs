//! `hotcell kill`.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::connection::Server;
use super::print_json;
use crate::cli::KillArgs;
use crate::terminal::plain;

/// Ends all of them, even if one could not be ended.
pub(super) async fn kill(arguments: &KillArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let mut killed = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for container in &arguments.containers {
        let asked = json!({ "container_id": container, "force": arguments.force });
        let answer: Result<Value> = server.call("kill", asked).await;
        match answer {
            Ok(answer) => {
                killed.push(json!({ "container": container, "status": answer["status"] }));
            }
            Err(error) => {
                eprintln!("hotcell: {}", plain(&format!("{error:#}")));
                killed.push(json!({ "container": container, "error": error.to_string() }));
                code = ExitCode::FAILURE;
            }
        }
    }
    if arguments.json {
        print_json(&json!({ "containers": killed })).await?;
    }
    Ok(code)
}
