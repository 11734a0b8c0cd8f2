//! `hotcell logs`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use hotcell_domain::ExecId;
use serde::Deserialize;
use serde_json::json;

use super::connection::Server;
use super::output::{finish, is_broken_pipe};
use super::poll::{Polled, Reader};
use super::print_json;
use crate::cli::LogsArgs;
use crate::terminal::{OutputSink, Screen};

pub(super) async fn logs(arguments: &LogsArgs) -> Result<ExitCode> {
    let server = Server::connect(&arguments.state).await?;
    let exec_id = find(&server, &arguments.target).await?;
    let mut reader = Reader::new(server, exec_id);
    let mut sink = OutputSink::Screen(Screen::new(arguments.raw));
    loop {
        let mut polled = reader.next(arguments.follow).await?;
        let is_last = polled.complete || (!arguments.follow && polled.messages.is_empty());
        match show(&mut polled, arguments.json, &mut sink).await {
            Ok(()) => {}
            Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error),
        }
        if is_last {
            finish(&mut sink).await?;
            explain(&polled);
            return Ok(ExitCode::SUCCESS);
        }
    }
}

async fn show(polled: &mut Polled, as_json: bool, sink: &mut OutputSink) -> Result<()> {
    if as_json {
        for message in &polled.messages {
            print_json(message).await?;
        }
        return Ok(());
    }
    for message in polled.read_messages()? {
        message.write_to(sink).await?;
    }
    Ok(())
}

fn explain(polled: &Polled) {
    let dropped = polled.end.truncated_bytes;
    if dropped > 0 {
        eprintln!("hotcell: {dropped} bytes from the middle were not kept");
    }
}

#[derive(Deserialize)]
struct ExecList {
    execs: Vec<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    exec_id: String,
}

/// The exec with this id, or the newest exec of a container.
async fn find(server: &Server, target: &str) -> Result<String> {
    if ExecId::parse(target).is_ok() {
        return Ok(target.to_owned());
    }
    let asked = json!({ "container_id": target, "include_finished": true });
    let listed: ExecList = server.call("list_execs", asked).await?;
    let newest = listed.execs.into_iter().next_back();
    let newest = newest.with_context(|| format!("nothing was run in {target} yet"))?;
    Ok(newest.exec_id)
}
