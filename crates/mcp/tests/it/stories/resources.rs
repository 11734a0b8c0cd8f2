//! workspace://, logs:// and stats://, their listing and completion.

use std::collections::HashMap;

use rmcp::model::{
    ArgumentInfo, CompleteRequestParams, CompletionContext, ErrorCode, PaginatedRequestParams,
    ReadResourceRequestParams, Reference, ResourceContents,
};
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use crate::world::{Client, World, masked, ok, sh};

async fn read(client: &Client, uri: &str) -> Result<Vec<String>, ServiceError> {
    let read = client
        .read_resource(ReadResourceRequestParams::new(uri))
        .await?;
    let text = |content: &ResourceContents| match content {
        ResourceContents::TextResourceContents { text, .. } => text.clone(),
        ResourceContents::BlobResourceContents { blob, .. } => format!("base64:{blob}"),
        _ => panic!("{content:?}"),
    };
    Ok(read.contents.iter().map(text).collect())
}

async fn completed(client: &Client, uri: &str, argument: (&str, &str)) -> Vec<String> {
    let context: HashMap<String, String> = [("container_id".to_owned(), "app".to_owned())].into();
    let argument = ArgumentInfo::new(argument.0, argument.1);
    let request = CompleteRequestParams::new(Reference::for_resource(uri), argument)
        .with_context(CompletionContext::with_arguments(context));
    client.complete(request).await.unwrap().completion.values
}

#[tokio::test]
async fn files_output_and_numbers_are_resources() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    let ran = sh(
        &client,
        "app",
        r"mkdir -p 'a b'; echo hi > 'a b/c.txt'; printf '\377' > bin; echo done",
    )
    .await;
    assert_eq!(
        read(&client, "workspace://app/").await.unwrap(),
        ["/workspace/a b/\n/workspace/bin"]
    );
    for uri in [
        "workspace://app/a%20b/c.txt",
        "workspace://app/a%20b%2Fc.txt",
        "workspace://app/a b/c.txt",
    ] {
        assert_eq!(read(&client, uri).await.unwrap(), ["hi\n"]);
    }
    assert_eq!(
        read(&client, "workspace://app/bin").await.unwrap(),
        ["base64:/w=="]
    );
    let logs = format!("logs://{}", ran.structured["exec_id"].as_str().unwrap());
    assert_eq!(read(&client, &logs).await.unwrap(), ["done\n"]);
    let stats: Value =
        serde_json::from_str(&read(&client, "stats://app").await.unwrap()[0]).unwrap();
    assert_eq!(
        (&stats["alias"], &stats["pids"]),
        (&json!("app"), &json!(256))
    );
    let egress: Value =
        serde_json::from_str(&read(&client, "hotcell://egress").await.unwrap()[0]).unwrap();
    assert_eq!(
        (&egress["default"], &egress["profiles"][0]["name"]),
        (&json!("none"), &json!("none"))
    );
}

#[tokio::test]
async fn a_long_resource_tells_how_to_get_the_rest() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    sh(&client, "app", "yes | head -c 2000000 > long").await;
    let contents = read(&client, "workspace://app/long").await.unwrap();
    assert_eq!(contents[0].len(), 1 << 20);
    assert_eq!(
        contents[1],
        "1048576 of 2000000 bytes; read on with fs_read and offset=1048576"
    );
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    let uris = [
        "workspace://nobody/a",
        "workspace://app/a",
        "logs://e_00000000000000000000000000",
        "stats://x",
        "file:///etc/passwd",
    ];
    for uri in uris {
        let error = read(&client, uri).await.unwrap_err();
        let ServiceError::McpError(error) = error else {
            panic!("{error}");
        };
        // The error codes before and since 2026-07-28.
        let codes = [ErrorCode::RESOURCE_NOT_FOUND, ErrorCode::INVALID_PARAMS];
        assert!(codes.contains(&error.code), "{error}");
        assert_eq!(error.data.unwrap()["code"], "not_found");
    }
}

#[tokio::test]
async fn resources_are_listed_page_by_page() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    let first = client.list_resources(None).await.unwrap();
    let shown: Vec<String> = first
        .resources
        .iter()
        .map(|one| masked(&format!("{} {}", one.uri.replace("//", "// "), one.name)))
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    workspace:// c_ID/ app
    stats:// c_ID app stats
    hotcell:// capabilities capabilities
    hotcell:// egress egress
    "#);
    for _ in 0..120 {
        sh(&client, "app", "true").await;
    }
    let mut cursor = None;
    let mut sizes = Vec::new();
    let mut all = Vec::new();
    loop {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = client.list_resources(Some(page)).await.unwrap();
        sizes.push(page.resources.len());
        all.extend(page.resources.into_iter().map(|one| one.uri));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [100, 24]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 124);
    let bad = PaginatedRequestParams::default().with_cursor(Some("what".to_owned()));
    assert!(client.list_resources(Some(bad)).await.is_err());
    let templates = client.list_all_resource_templates().await.unwrap();
    let templates: Vec<String> = templates.into_iter().map(|one| one.uri_template).collect();
    insta::assert_snapshot!(templates.join("\n"), @r#"
    workspace://{container_id}/{path}
    logs://{exec_id}
    stats://{container_id}
    hotcell://capabilities/{server}
    "#);
}

#[tokio::test]
async fn arguments_are_completed() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    let ran = sh(
        &client,
        "app",
        "mkdir -p src/deep; touch src/main.py src/mod.py other",
    )
    .await;
    let files = "workspace://{container_id}/{path}";
    assert_eq!(
        completed(&client, files, ("container_id", "a")).await,
        ["app"]
    );
    assert_eq!(completed(&client, files, ("path", "s")).await, ["src/"]);
    assert_eq!(
        completed(&client, files, ("path", "src/m")).await,
        ["src/main.py", "src/mod.py"]
    );
    assert_eq!(
        completed(&client, files, ("path", "no/such/")).await,
        Vec::<String>::new()
    );
    let execs = completed(&client, "logs://{exec_id}", ("exec_id", "e_")).await;
    assert_eq!(execs, [ran.structured["exec_id"].as_str().unwrap()]);
    sh(&client, "app", "mkdir many; cd many; seq 150 | xargs touch").await;
    assert_eq!(
        completed(&client, files, ("path", "many/")).await.len(),
        100
    );
}
