//! `system_status`, metrics, reconcile, `garbage_collect`, and who may call them.

use rmcp::model::ErrorCode;
use rmcp::service::ServiceError;
use serde_json::json;

use crate::world::{World, ok, refused, request, shown, somebody, spawn};

#[tokio::test]
async fn the_operator_sees_how_the_whole_is() {
    let world = World::new().await;
    let client = world.client().await;
    spawn(&client).await;
    let status = ok(&client, "system_status", json!({})).await;
    insta::assert_snapshot!(status.text, @r#"engine fake is up; 1 containers, 0 execs running, 0 queued; this host does not enforce for a container as a whole: memory, cpu, pids"#);
    assert_eq!(status.structured["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status.structured["ready"], true);
    let metrics = ok(&client, "metrics", json!({})).await;
    assert!(
        metrics.text.contains("mcp_devbench_container_spawns_total"),
        "{}",
        metrics.text
    );
    let settled = ok(&client, "reconcile", json!({})).await;
    insta::assert_snapshot!(shown(&settled.structured), @r#"
    {
      "adopted": 0,
      "cleaned": 0,
      "discovered": 1,
      "errors": 0,
      "orphaned": 0
    }
    "#);
    let collected = ok(&client, "garbage_collect", json!({"dry_run": true})).await;
    insta::assert_snapshot!(collected.text, @r#"would remove 0 expired and 0 idle containers, 0 execs, 0 records, 0 images, 0 leftovers; 0 errors"#);
}

#[tokio::test]
async fn the_operator_sees_everybodys_containers_and_nobody_else_does() {
    let world = World::new().await;
    let operator = world.client().await;
    let eve = world.client_with(somebody("eve"), false).await;
    spawn(&operator).await;
    let theirs = spawn(&eve).await;
    let listed = ok(&operator, "list_containers", json!({"all": true})).await;
    let containers = listed.structured["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0]["principal"], "local");
    assert_eq!(containers[1]["container_id"], theirs.as_str());
    assert_eq!(containers[1]["principal"], "eve");
    assert!(listed.text.ends_with("  of eve"), "{}", listed.text);
    let own = ok(&operator, "list_containers", json!({})).await;
    assert_eq!(own.structured["containers"].as_array().unwrap().len(), 1);
    assert!(own.structured["containers"][0].get("principal").is_none());
    let said = refused(&eve, "list_containers", json!({"all": true})).await;
    insta::assert_snapshot!(said, @r"
    denied: only an admin sees the containers of other principals
    hint: leave `all` out to see yours
    ");
    let status = ok(&operator, "system_status", json!({})).await;
    assert_eq!(status.structured["principals"][0]["principal"], "eve");
    assert_eq!(status.structured["principals"][0]["containers"], 1);
}

#[tokio::test]
async fn nobody_else_has_the_operators_tools() {
    let world = World::new().await;
    let client = world.client_with(somebody("eve"), false).await;
    assert_eq!(client.list_all_tools().await.unwrap().len(), 22);
    for tool in ["system_status", "metrics", "reconcile", "garbage_collect"] {
        let said = refused(&client, tool, json!({})).await;
        let expected = format!("denied: {tool} is for the operator\nhint: ");
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.contains("--admin-over-http"), "{said}");
    }
    let unknown = client.call_tool(request("no_such_tool", json!({}))).await;
    let Err(ServiceError::McpError(error)) = unknown else {
        panic!("{unknown:?}");
    };
    assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
    assert_eq!(error.message, "unknown tool: no_such_tool");
}

#[tokio::test]
async fn the_server_says_who_it_is() {
    let world = World::new().await;
    let client = world.client().await;
    let info = client.peer_info().unwrap().clone();
    assert_eq!(info.server_info.as_ref().unwrap().name, "hotcell");
    assert!(info.instructions.as_ref().unwrap().contains("spawn"));
}
