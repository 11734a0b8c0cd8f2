//! The tasks extension: a running exec as a task.
//!
//! A task is its exec, under the same id, and nothing more. So a task exists as long as its exec is
//! remembered, whichever server answers, even after a restart.

use hotcell_domain::{Caller, ExecId, ExecStatus};
use hotcell_service::{ExecView, Poll};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, DetailedTask, GetTaskResult, JsonObject, Task, TaskPayload, TaskStatus,
};
use serde_json::Value;
use std::time::Duration;

use crate::Server;
use crate::tools::{ToolError, exec_answer, exec_id};
use hotcell_domain::rfc3339;

/// A task is remembered for at least this long: ended execs are kept for a day.
const TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// How often clients should poll.
const POLL_INTERVAL_MS: u64 = 1000;

/// Most output in a task's result.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// The task of a started exec.
pub(crate) fn begun(view: &ExecView) -> Task {
    let created_ms = view.id.unix_ms();
    let news = view
        .messages
        .last()
        .map_or(created_ms, |message| message.unix_ms);
    let id = &view.id;
    let message = format!(
        "{id} is {}; exec_poll shows its output",
        view.status.as_str()
    );
    Task::new(
        id.as_str(),
        TaskStatus::Working,
        rfc3339(created_ms),
        rfc3339(news),
    )
    .with_status_message(message)
    .with_ttl_ms(TTL_MS)
    .with_poll_interval_ms(POLL_INTERVAL_MS)
}

/// The status of a task, and its result once there is one.
pub(crate) async fn get(
    server: &Server,
    caller: &Caller,
    task_id: &str,
) -> Result<GetTaskResult, ErrorData> {
    let poll = Poll {
        after_seq: 0,
        wait: Duration::ZERO,
        bytes_max: RESULT_BYTES_MAX,
        until_end: false,
    };
    let id = parse(task_id)?;
    let polled = server.service().exec_poll(caller, &id, poll).await;
    let view = polled.map_err(|error| unknown(&error.into()))?;
    let task = begun(&view);
    let payload = match view.status {
        ExecStatus::Queued | ExecStatus::Running => TaskPayload::Working,
        ExecStatus::Cancelled => TaskPayload::Cancelled,
        ExecStatus::Succeeded
        | ExecStatus::Failed
        | ExecStatus::TimedOut
        | ExecStatus::OomKilled
        | ExecStatus::DiskLimit
        | ExecStatus::Lost => TaskPayload::Completed {
            result: result(view),
        },
    };
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// Cancels a task's exec.
pub(crate) async fn cancel(
    server: &Server,
    caller: &Caller,
    task_id: &str,
) -> Result<(), ErrorData> {
    let id = parse(task_id)?;
    let cancelled = server.service().exec_cancel(caller, &id).await;
    cancelled.map_err(|error| unknown(&error.into()))?;
    Ok(())
}

/// The result that `exec_start` would have returned.
fn result(view: ExecView) -> JsonObject {
    let result = CallToolResult::from(exec_answer(view, RESULT_BYTES_MAX));
    match serde_json::to_value(result) {
        Ok(Value::Object(result)) => result,
        _ => unreachable!("a result is an object with string keys"),
    }
}

fn parse(task_id: &str) -> Result<ExecId, ErrorData> {
    exec_id(task_id).map_err(|error| unknown(&error))
}

/// Invalid params is the protocol's only error for an unknown task.
fn unknown(error: &ToolError) -> ErrorData {
    let data = error.to_json();
    ErrorData::invalid_params(error.message(), Some(data))
}
