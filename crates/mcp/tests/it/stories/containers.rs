//! spawn, attach, `list_containers`, kill.

use hotcell_domain::Quota;
use hotcell_service::Settings;
use serde_json::{Value, json};

use crate::world::{Client, World, call, ok, refused, shown, spawn};

#[tokio::test]
async fn a_container_is_made_listed_attached_to_and_ended() {
    let world = World::new().await;
    let client = world.client().await;
    let made = ok(
        &client,
        "spawn",
        json!({"alias": "app", "memory": "256m", "cpus": 0.5, "labels": {"for": "tests"}}),
    )
    .await;
    insta::assert_snapshot!(made.text, @r#"container c_ID (alias app) is running: image host, engine fake; run commands with exec_start (wait_s=50 for short ones); files are in /workspace"#);
    insta::assert_snapshot!(shown(&made.structured), @r#"
    {
      "alias": "app",
      "container_id": "c_ID",
      "created_at": "TIME",
      "egress": "none",
      "engine": "fake",
      "image": "host",
      "next_step": "run commands with exec_start (wait_s=50 for short ones); files are in /workspace",
      "status": "running",
      "warm": false
    }
    "#);
    let attached = json!({"target": "app", "client_name": "stories", "session_id": "s-1"});
    let attached = ok(&client, "attach", attached).await;
    insta::assert_snapshot!(shown(&attached.structured), @r#"
    {
      "alias": "app",
      "attached_at": "TIME",
      "container_id": "c_ID",
      "roots": [
        "/workspace"
      ],
      "status": "running"
    }
    "#);
    let listed = ok(&client, "list_containers", json!({})).await;
    insta::assert_snapshot!(listed.text, @r#"c_ID  app  running  host  transient  made TIME  used TIME"#);
    insta::assert_snapshot!(shown(&listed.structured), @r#"
    {
      "containers": [
        {
          "alias": "app",
          "attachments": [
            {
              "attached_at": "TIME",
              "client_name": "stories",
              "session_id": "s-1"
            }
          ],
          "container_id": "c_ID",
          "created_at": "TIME",
          "disk": {
            "enforced_by": "watched",
            "limit_bytes": 10737418240,
            "limit_files": 655360
          },
          "egress": "none",
          "engine": "fake",
          "image": "host",
          "last_used_at": "TIME",
          "memory": {
            "limit_bytes": 268435456
          },
          "persistent": false,
          "status": "running"
        }
      ]
    }
    "#);
    let killed = ok(
        &client,
        "kill",
        json!({"container_id": "app", "force": true}),
    )
    .await;
    insta::assert_snapshot!(shown(&killed.structured), @r#"
    {
      "status": "stopped"
    }
    "#);
    insta::assert_snapshot!(refused(&client, "kill", json!({"container_id": "app"})).await, @r#"
    not_found: there is no container app
    hint: call list_containers to see what there is, or spawn to make one
    "#);
    insta::assert_snapshot!(ok(&client, "list_containers", json!({})).await.text, @r#"no containers; spawn makes one"#);
}

#[tokio::test]
async fn the_same_key_means_the_same_container() {
    let world = World::new().await;
    let client = world.client().await;
    let request = json!({"idempotency_key": "k"});
    let (one, two) = tokio::join!(
        ok(&client, "spawn", request.clone()),
        ok(&client, "spawn", request)
    );
    assert_eq!(
        one.structured["container_id"],
        two.structured["container_id"]
    );
}

#[tokio::test]
async fn a_container_that_cannot_be_made_says_why() {
    let world = World::with(Settings {
        quotas: Quota {
            containers: 1,
            ..Quota::default()
        }
        .into(),
        ..Settings::default()
    })
    .await;
    let client = world.client().await;
    let mut said = vec![
        refused(&client, "spawn", json!({"network": "full"})).await,
        refused(&client, "spawn", json!({"network": "lan"})).await,
        refused(&client, "spawn", json!({"alias": "Not An Alias"})).await,
        refused(&client, "spawn", json!({"memory": "lots"})).await,
        refused(&client, "spawn", json!({"memory": 12})).await,
        refused(&client, "spawn", json!({"cpus": "-1"})).await,
        refused(&client, "spawn", json!({"pids": 1})).await,
        refused(&client, "spawn", json!({"ttl_s": 0})).await,
        refused(&client, "spawn", json!({"image": "no such $(image)"})).await,
        refused(&client, "spawn", json!({"env": {"1A": "x"}})).await,
        refused(&client, "spawn", json!({"env": {"A": 5}})).await,
        refused(&client, "spawn", json!({"labels": {"a": "b\u{0}"}})).await,
        refused(&client, "spawn", json!({"idempotency_key": ""})).await,
    ];
    ok(&client, "spawn", json!({"alias": "one"})).await;
    said.push(refused(&client, "spawn", json!({})).await);
    insta::assert_snapshot!(said.join("\n"), @r#"
    denied: only network "none" is allowed here (rule `allow_network`)
    hint: leave `network` out: a container needs none to run code
    denied: `network` may be none, or full where the operator allows it
    hint: leave it out: a container needs no network to run code
    invalid_argument: `alias`: an alias is 1 to 63 characters of a-z, 0-9, `.`, `_` and `-`, and starts with a letter or digit
    hint: correct the argument and call again
    invalid_argument: `memory`: `lots` is not a size; write for example 512m or 2g
    hint: correct the argument and call again
    invalid_argument: `memory`: a size must be from 16 MiB to 16 TiB
    hint: correct the argument and call again
    invalid_argument: `cpus`: cpus must be from 0.01 to 4096
    hint: correct the argument and call again
    invalid_argument: `pids`: pids must be from 8 to 4194304
    hint: correct the argument and call again
    invalid_argument: `ttl_s` must be a whole number of at least 1, not 0
    hint: ttl_s: Ended after so many seconds
    invalid_argument: `image`: not an image reference; write for example `host` or `docker.io/library/python:3.12-slim`
    hint: correct the argument and call again
    invalid_argument: `env`: `1A` is not a variable's name: letters, digits and `_`, not starting with a digit
    hint: correct the argument and call again
    invalid_argument: `env.A` must be a string, not 5
    hint: correct it and call again
    invalid_argument: `labels`: label names are 1 to 256 bytes, values at most 256, both without control characters
    hint: correct the argument and call again
    invalid_argument: `idempotency_key`: must be 1 to 256 bytes of text without control characters
    hint: correct the argument and call again
    resource_exhausted: you have 1 containers, and your quota is 1
    quota: containers, limit: 1, used: 1
    hint: kill a container that you no longer need (list_containers shows them), then call again
    "#);
}

#[tokio::test]
async fn a_limit_that_is_not_named_is_as_configured() {
    let mut settings = Settings::default();
    settings.default_limits.pids = hotcell_domain::Pids::new(99).unwrap();
    let world = World::with(settings).await;
    let client = world.client().await;
    ok(
        &client,
        "spawn",
        json!({"alias": "app", "memory": 67_108_864}),
    )
    .await;
    let stats = rmcp::model::ReadResourceRequestParams::new("stats://app");
    let stats = client.read_resource(stats).await.unwrap();
    let stats = serde_json::to_string(&stats.contents).unwrap();
    assert!(
        stats.contains(r#"\"pids\":99"#) && stats.contains("67108864"),
        "{stats}"
    );
}

#[tokio::test]
async fn an_alias_is_taken_once() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    insta::assert_snapshot!(refused(&client, "spawn", json!({"alias": "app"})).await, @r#"
    already_exists: alias app exists already
    hint: use what is there, or choose another name
    "#);
}

#[tokio::test]
async fn a_long_name_of_nothing_is_not_repeated_at_length() {
    let world = World::new().await;
    let mine = world.client().await;
    let attach = json!({"target": "x".repeat(5000), "client_name": "a", "session_id": "b"});
    let said = call(&mine, "attach", attach).await;
    assert!(said.structured["message"].as_str().unwrap().len() < 2000);
}

/// Follows the cursors of a list, two rows at a time, and answers the ids of each page.
async fn pages(client: &Client, tool: &str, rows: &str, id: &str, also: Value) -> Vec<Vec<String>> {
    let (mut arguments, mut pages) = (also, Vec::new());
    arguments["limit"] = json!(2);
    loop {
        let listed = ok(client, tool, arguments.clone()).await;
        let page = listed.structured[rows].as_array().unwrap();
        pages.push(
            page.iter()
                .map(|row| row[id].as_str().unwrap().to_owned())
                .collect(),
        );
        let next = &listed.structured["next_cursor"];
        let Some(cursor) = next.as_str() else {
            return pages;
        };
        let told = format!("pass cursor={cursor}");
        assert!(listed.text.contains(&told), "{}", listed.text);
        arguments["cursor"] = next.clone();
    }
}

#[tokio::test]
async fn long_lists_are_read_page_by_page_from_the_newest() {
    let world = World::new().await;
    let client = world.client().await;
    let mut containers = Vec::new();
    for _ in 0..3 {
        containers.push(spawn(&client).await);
    }
    let found = pages(
        &client,
        "list_containers",
        "containers",
        "container_id",
        json!({}),
    )
    .await;
    assert_eq!(found, [&containers[1..], &containers[..1]]);
    let kill = json!({"container_id": containers[1], "force": true});
    ok(&client, "kill", kill).await;
    let all = json!({"include_stopped": true});
    let found = pages(
        &client,
        "list_containers",
        "containers",
        "container_id",
        all,
    )
    .await;
    assert_eq!(found, [&containers[1..], &containers[..1]]);

    let mut execs = Vec::new();
    for _ in 0..3 {
        let start = json!({"container_id": containers[0], "cmd": ["true"], "wait_s": 20});
        let started = ok(&client, "exec_start", start).await;
        execs.push(started.structured["exec_id"].as_str().unwrap().to_owned());
    }
    let all = json!({"include_finished": true});
    let found = pages(&client, "list_execs", "execs", "exec_id", all).await;
    assert_eq!(found, [&execs[1..], &execs[..1]]);
    for tool in ["list_containers", "list_execs"] {
        let said = refused(&client, tool, json!({"cursor": "bm8"})).await;
        assert!(said.starts_with("invalid_argument: `cursor`"), "{said}");
        let said = refused(&client, tool, json!({"limit": 0})).await;
        assert!(said.starts_with("invalid_argument: "), "{said}");
    }
}
