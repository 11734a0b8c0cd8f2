//! The tasks extension.

use std::time::{Duration, Instant};

use hotcell_mcp::Options;
use rmcp::model::{
    CallToolResponse, CancelTaskParams, GetTaskParams, TaskPayload, TaskStatus, UpdateTaskParams,
};
use serde_json::{Value, json};

use crate::world::{Client, PATIENCE, World, masked, ok, request, spawn};

/// Starts a command that takes longer than a client waits for a direct answer.
async fn begin(client: &Client, container: &str, script: &str, wait_s: u32) -> CallToolResponse {
    let cmd = ["/bin/sh", "-c", script];
    let arguments = json!({"container_id": container, "cmd": cmd, "wait_s": wait_s});
    client
        .call_tool_once(request("exec_start", arguments))
        .await
        .unwrap()
}

async fn ended(client: &Client, task_id: &str) -> TaskPayload {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let got = client.get_task(GetTaskParams::new(task_id)).await.unwrap();
        if got.task.status().is_terminal() {
            return got.task.payload;
        }
        assert!(Instant::now() < deadline, "{got:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_long_command_is_a_task_for_a_client_that_takes_tasks() {
    let world = World::new().await;
    let client = world.client_with(Options::default(), true).await;
    let container = spawn(&client).await;
    let CallToolResponse::Task(task) = begin(
        &client,
        &container,
        "until [ -e go ]; do sleep 0.05; done; echo late; exit 4",
        50,
    )
    .await
    else {
        panic!("a task");
    };
    assert_eq!(task.task.status, TaskStatus::Working);
    insta::assert_snapshot!(masked(task.task.status_message.as_deref().unwrap()), @r#"e_ID is running; exec_poll shows its output"#);
    let update = UpdateTaskParams::new(&task.task.task_id, std::collections::BTreeMap::default());
    client.update_task(update).await.unwrap();
    let go = json!({"container_id": container, "path": "go", "content": ""});
    ok(&client, "fs_write", go).await;
    // Another connection knows it too: a task is its exec.
    let other = world.client_with(Options::default(), true).await;
    let TaskPayload::Completed { result } = ended(&other, &task.task.task_id).await else {
        panic!("it completes");
    };
    let structured = &result["structuredContent"];
    assert_eq!(
        (&structured["exit_code"], &structured["messages"][0]["data"]),
        (&json!(4), &json!("late\n"))
    );
    assert_eq!(result["isError"], Value::Bool(false));
}

#[tokio::test]
async fn a_cancelled_task_ends_its_command() {
    let world = World::new().await;
    let client = world.client_with(Options::default(), true).await;
    let container = spawn(&client).await;
    let CallToolResponse::Task(task) = begin(&client, &container, "sleep 600", 50).await else {
        panic!("a task");
    };
    client
        .cancel_task(CancelTaskParams::new(&task.task.task_id))
        .await
        .unwrap();
    assert_eq!(
        ended(&client, &task.task.task_id).await,
        TaskPayload::Cancelled
    );
    assert!(client.get_task(GetTaskParams::new("what")).await.is_err());
}

#[tokio::test]
async fn no_task_is_made_of_what_is_short_or_not_waited_for_or_asked_by_another_client() {
    let world = World::new().await;
    let client = world.client_with(Options::default(), true).await;
    let container = spawn(&client).await;
    for (script, wait_s) in [("sleep 600", 0), ("sleep 600", 1)] {
        let answer = begin(&client, &container, script, wait_s).await;
        assert!(
            matches!(answer, CallToolResponse::Complete(_)),
            "{script} {wait_s}"
        );
    }
    // On a busy machine even this may take long.
    let deadline = Instant::now() + PATIENCE;
    while !matches!(
        begin(&client, &container, "true", 50).await,
        CallToolResponse::Complete(_)
    ) {
        assert!(Instant::now() < deadline, "a short one is a task each time");
    }
    let plain = world.client().await;
    let answer = begin(&plain, &container, "sleep 1.5", 50).await;
    assert!(matches!(answer, CallToolResponse::Complete(_)));
}
