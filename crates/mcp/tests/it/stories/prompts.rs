//! `setup_python`, `setup_node`, `run_tests`.

use rmcp::model::{ArgumentInfo, CompleteRequestParams, GetPromptRequestParams, Reference};
use serde_json::json;

use crate::world::{World, ok};

#[tokio::test]
async fn prompts_are_listed_filled_in_and_completed() {
    let world = World::new().await;
    let client = world.client().await;
    ok(&client, "spawn", json!({"alias": "app"})).await;
    let listed = client.list_all_prompts().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(names, ["setup_python", "setup_node", "run_tests"]);
    let arguments = json!({"container_id": "app", "command": "make test"});
    let arguments = arguments.as_object().unwrap().clone();
    let request = GetPromptRequestParams::new("run_tests").with_arguments(arguments);
    let prompt = client.get_prompt(request).await.unwrap();
    insta::assert_snapshot!(prompt.messages[0].content.as_text().unwrap().text, @r#"
    Run the tests of a project and explain what fails.
    1. Work in the container `app`. The project is in `/workspace`.
    2. Its tests are run by `make test`.
    3. Run them with exec_start (cwd set to the project, wait_s=50) and follow with exec_poll until complete=true.
    4. For each failure tell the test, the reason in a sentence, and the line of code to look at. Change nothing unless you are asked to.
    "#);
    let argument = ArgumentInfo::new("container_id", "ap");
    let request = CompleteRequestParams::new(Reference::for_prompt("run_tests"), argument);
    assert_eq!(
        client.complete(request).await.unwrap().completion.values,
        ["app"]
    );
    assert!(
        client
            .get_prompt(GetPromptRequestParams::new("none"))
            .await
            .is_err()
    );
}
