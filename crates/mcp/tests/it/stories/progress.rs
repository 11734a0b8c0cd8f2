//! Progress notifications.

use std::time::{Duration, Instant};

use hotcell_domain::ContainerId;
use rmcp::model::ProgressNotificationParam;
use serde_json::{Value, json};

use crate::world::{Client, PATIENCE, Said, World, ok, sh, spawn};

/// The notifications since the last call of this function.
fn heard(client: &Client) -> Vec<ProgressNotificationParam> {
    std::mem::take(&mut *client.service().progress.lock().unwrap())
}

async fn until_heard_twice(client: &Client) {
    let deadline = Instant::now() + PATIENCE;
    while client.service().progress.lock().unwrap().len() < 2 {
        assert!(Instant::now() < deadline, "the client hears nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Calls a tool whose work waits until the client got two notifications. Returns their message, the
/// same each time, and the tool's answer.
async fn call_held_up(
    world: &World,
    client: &Client,
    tool: &str,
    arguments: Value,
) -> (String, Said) {
    let container = ContainerId::parse(arguments["container_id"].as_str().unwrap()).unwrap();
    heard(client);
    world.engine.pause(&container).unwrap();
    let going_on = async {
        until_heard_twice(client).await;
        world.engine.resume(&container).unwrap();
    };
    let (said, ()) = tokio::join!(ok(client, tool, arguments), going_on);
    let heard = heard(client);
    let (first, second) = (&heard[0], &heard[1]);
    assert_eq!(first.progress_token, second.progress_token);
    assert_eq!(first.message, second.message);
    assert!(0.0 < first.progress && first.progress < second.progress);
    (first.message.clone().unwrap(), said)
}

#[tokio::test]
async fn who_waits_for_a_command_hears_that_it_goes_on() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let go_on = async {
        until_heard_twice(&client).await;
        let go = json!({"container_id": container, "path": "go", "content": ""});
        ok(&client, "fs_write", go).await
    };
    let script = "until [ -e go ]; do sleep 0.05; done";
    tokio::join!(sh(&client, &container, script), go_on);
    let heard: Vec<f64> = heard(&client).iter().map(|one| one.progress).collect();
    assert!(heard.is_sorted(), "{heard:?}");
}

#[tokio::test]
async fn who_waits_for_an_archive_hears_that_it_is_packed_or_unpacked() {
    let world = World::new().await;
    let client = world.client().await;
    let container = spawn(&client).await;
    let write = json!({"container_id": container, "path": "a/file", "content": "kept"});
    ok(&client, "fs_write", write).await;
    let export = json!({"container_id": container, "path": "a"});
    let (told, exported) = call_held_up(&world, &client, "fs_export", export).await;
    assert_eq!(told, "packing");
    let archive = &exported.structured["archive"];
    let import = json!({"container_id": container, "dest": "b", "archive": archive});
    let (told, imported) = call_held_up(&world, &client, "fs_import", import).await;
    assert_eq!(told, "unpacking");
    assert_eq!(imported.structured["bytes"], 4);
    let found = sh(&client, &container, "find b -type f -exec cat {} +").await;
    assert_eq!(found.structured["messages"][0]["data"], "kept");
}
