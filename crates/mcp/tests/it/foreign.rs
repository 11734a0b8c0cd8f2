//! Ids of another principal: tools, resources, completions and tasks treat them like ids that do
//! not exist. The tools come from the list that clients see, so a new one is tested too.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::HashMap;

use rmcp::model::{
    ArgumentInfo, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompletionContext,
    GetTaskParams, ReadResourceRequestParams, Reference, Tool, UpdateTaskParams,
};
use serde_json::{Value, json};

use hotcell_mcp::Options;

use crate::world;
use crate::world::base::{Handles, base, is_handle, nobody};
use crate::world::{Client, World, call, ok, request, sh, somebody};

/// Two principals on one server; only the first owns something.
struct Two {
    _world: World,
    owner: Client,
    eve: Client,
    /// By id.
    real: Handles,
}

/// What the owner calls the container.
const ALIAS: &str = "mine";

impl Two {
    async fn new() -> Self {
        let world = World::new().await;
        let owner = world.client_with(Options::default(), true).await;
        let eve = world.client_with(somebody("eve"), true).await;
        let made = ok(&owner, "spawn", json!({"alias": ALIAS, "persistent": true})).await;
        let container = made.structured["container_id"].as_str().unwrap().to_owned();
        let ran = sh(&owner, &container, "mkdir d; echo kept > d/file; echo said").await;
        let exec = ran.structured["exec_id"].as_str().unwrap().to_owned();
        Self {
            _world: world,
            owner,
            eve,
            real: Handles { container, exec },
        }
    }

    /// The owner's container still runs, and its file is unchanged.
    async fn expect_untouched(&self) {
        let read = json!({"container_id": ALIAS, "path": "d/file"});
        let read = ok(&self.owner, "fs_read", read).await;
        assert_eq!(read.structured["content"], "kept\n");
        let files = json!({"container_id": ALIAS, "recursive": true});
        let files = ok(&self.owner, "fs_list", files).await;
        assert_eq!(files.structured["entries"].as_array().unwrap().len(), 2);
    }
}

/// Valid arguments of a tool, which name a container even where that is optional.
fn arguments(tool: &Tool, on: &Handles) -> Value {
    let mut arguments = base(&tool.name, on).unwrap_or_else(|| panic!("{}", tool.name));
    if tool.input_schema["properties"]
        .get("container_id")
        .is_some()
    {
        arguments["container_id"] = on.container.as_str().into();
    }
    arguments
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tool_knows_the_handles_of_somebody_else() {
    let two = Two::new().await;
    let by_alias = Handles {
        container: ALIAS.to_owned(),
        exec: two.real.exec.clone(),
    };
    let mut tools = two.eve.list_all_tools().await.unwrap();
    tools.retain(|tool| {
        let fields = tool.input_schema["properties"].as_object().unwrap();
        fields.keys().any(|field| is_handle(field))
    });
    // The tool that ends the container comes last.
    tools.sort_by_key(|tool| tool.name == "kill");
    assert!(tools.len() > 12, "{}", tools.len());
    for handles in [&two.real, &by_alias] {
        for tool in &tools {
            let arguments = |on| arguments(tool, on);
            let foreign = call(&two.eve, &tool.name, arguments(handles)).await;
            let missing = call(&two.eve, &tool.name, arguments(&nobody())).await;
            assert_eq!(foreign.structured["code"], "not_found", "{}", tool.name);
            let without_names = |text: &str| text.replace(ALIAS, "c_ID");
            assert_eq!(without_names(&foreign.text), missing.text, "{}", tool.name);
        }
    }
    two.expect_untouched().await;
    // The same calls of the owner succeed.
    for tool in &tools {
        let arguments = arguments(tool, &two.real);
        let own = call(&two.owner, &tool.name, arguments.clone()).await;
        let foreign = call(&two.eve, &tool.name, arguments).await;
        assert_ne!(own.text, foreign.text, "{}", tool.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_list_or_completion_shows_what_is_somebody_elses() {
    let two = Two::new().await;
    for (tool, field) in [("list_containers", "containers"), ("list_execs", "execs")] {
        let all = || match tool {
            "list_containers" => json!({"include_stopped": true}),
            _ => json!({"include_finished": true}),
        };
        let listed = |said: world::Said| said.structured[field].as_array().unwrap().len();
        assert_eq!(listed(ok(&two.owner, tool, all()).await), 1, "{tool}");
        assert_eq!(listed(ok(&two.eve, tool, all()).await), 0, "{tool}");
    }
    for (template, argument) in [
        ("workspace://{container_id}/{path}", "container_id"),
        ("workspace://{container_id}/{path}", "path"),
        ("logs://{exec_id}", "exec_id"),
        ("stats://{container_id}", "container_id"),
    ] {
        let values = async |client: &Client| {
            let context: HashMap<_, _> = [("container_id".to_owned(), ALIAS.to_owned())].into();
            let argument = ArgumentInfo::new(argument, "");
            let request = CompleteRequestParams::new(Reference::for_resource(template), argument)
                .with_context(CompletionContext::with_arguments(context));
            client.complete(request).await.unwrap().completion.values
        };
        assert!(
            !values(&two.owner).await.is_empty(),
            "{template} {argument}"
        );
        assert_eq!(values(&two.eve).await, [""; 0], "{template} {argument}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_resource_of_somebody_else_is_listed_or_read() {
    let two = Two::new().await;
    let listed = async |client: &Client| client.list_all_resources().await.unwrap().len();
    assert!(listed(&two.owner).await >= 2);
    assert_eq!(listed(&two.eve).await, 0);
    let templates = two.owner.list_all_resource_templates().await.unwrap();
    assert!(templates.len() >= 3, "{}", templates.len());
    let by_alias = Handles {
        container: ALIAS.to_owned(),
        ..two.real.clone()
    };
    for template in templates {
        for handles in [&two.real, &by_alias] {
            let uri = |on| uri(&template.uri_template, on);
            let read = async |client: &Client, uri: &str| {
                let read = ReadResourceRequestParams::new(uri);
                client.read_resource(read).await
            };
            let foreign = uri(handles);
            assert!(read(&two.owner, &foreign).await.is_ok(), "{foreign}");
            let refused = async |uri: &str| {
                let refused = read(&two.eve, uri).await.expect_err(uri);
                let said = world::masked(&refused.to_string());
                said.replace(ALIAS, "c_ID")
            };
            let missing = uri(&nobody());
            assert_eq!(
                refused(&foreign).await,
                refused(&missing).await,
                "{foreign}"
            );
        }
    }
}

/// A resource of a template; a new template needs a line here.
fn uri(template: &str, on: &Handles) -> String {
    let Handles { container, exec } = on;
    match template {
        "workspace://{container_id}/{path}" => format!("workspace://{container}/d/file"),
        "stats://{container_id}" => format!("stats://{container}"),
        "logs://{exec_id}" => format!("logs://{exec}"),
        other => panic!("{other} has no line here"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_of_somebody_else_is_seen_changed_or_cancelled() {
    let two = Two::new().await;
    let script = "until [ -e go ]; do sleep 0.05; done; echo late";
    let long = json!({"container_id": ALIAS, "cmd": ["/bin/sh", "-c", script], "wait_s": 50});
    let begun = two.owner.call_tool_once(request("exec_start", long)).await;
    let CallToolResponse::Task(task) = begun.unwrap() else {
        panic!("a task");
    };
    let id = &task.task.task_id;
    let eve = &two.eve;
    let refusals = async |id: &str| {
        let update = UpdateTaskParams::new(id, std::collections::BTreeMap::default());
        let refusals = [
            eve.get_task(GetTaskParams::new(id)).await.err(),
            eve.update_task(update).await.err(),
            eve.cancel_task(CancelTaskParams::new(id)).await.err(),
        ];
        refusals.map(|refusal| world::masked(&refusal.expect("a refusal").to_string()))
    };
    assert_eq!(refusals(id).await, refusals(&nobody().exec).await);
    // It goes on, and its owner sees it.
    let got = two.owner.get_task(GetTaskParams::new(id)).await.unwrap();
    assert!(!got.task.status().is_terminal(), "{got:?}");
    two.owner
        .cancel_task(CancelTaskParams::new(id))
        .await
        .unwrap();
}
