//! What the list of tools costs a model, and how arguments are refused.

use rmcp::model::{CallToolResult, JsonObject, ListToolsResult};
use serde_json::{Value, json};

use super::{Table, ToolError, check};
use crate::Toolsets;

/// What our tools may take of the 16 KB that all tools together may.
const LIST_BYTES_MAX: usize = 12_500;

fn listed() -> Vec<rmcp::model::Tool> {
    Table::new(Toolsets::ALL).list(true)
}

fn size(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).unwrap().len()
}

/// What a tool says of arguments.
fn said(tool: &str, arguments: Value) -> String {
    let table = Table::new(Toolsets::ALL);
    let entry = table
        .0
        .iter()
        .find(|entry| entry.listed.name == tool)
        .unwrap();
    let mut arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    match check::check(&entry.arguments, &mut arguments) {
        Ok(()) => "ok".to_owned(),
        Err(error) => text(error),
    }
}

fn text(error: ToolError) -> String {
    CallToolResult::from(error).content[0]
        .as_text()
        .unwrap()
        .text
        .clone()
}

#[test]
fn the_tool_list_is_short_enough_for_a_model() {
    let tools = listed();
    let shares = tools
        .iter()
        .map(|tool| format!("{} {}", tool.name, size(tool)));
    let mut shares: Vec<String> = shares.collect();
    let total = size(&ListToolsResult::with_all_items(tools));
    shares.push(format!("total {total}"));
    assert!(total <= LIST_BYTES_MAX, "{}", shares.join("\n"));
    insta::assert_snapshot!(shares.join("\n"), @r#"
    spawn 930
    attach 494
    list_containers 370
    kill 412
    exec_start 1007
    exec_poll 866
    exec_input 625
    exec_cancel 402
    list_execs 431
    fs_read 677
    fs_write 846
    fs_delete 487
    fs_stat 476
    fs_list 668
    fs_batch 825
    fs_import 564
    fs_export 664
    system_status 482
    metrics 307
    reconcile 434
    garbage_collect 475
    total 12498
    "#);
}

#[test]
fn a_refusal_names_the_field_and_what_it_should_be() {
    let cases = [
        said("exec_start", json!({"container_id": "app", "cmd": "ls -l"})),
        said("exec_start", json!({"container_id": "app", "cmd": []})),
        said(
            "exec_start",
            json!({"container_id": "app", "cmd": ["ls", 5]}),
        ),
        said("exec_poll", json!({"wait_s": 5})),
        said("exec_poll", json!({"exec_id": "e", "wait_s": 51})),
        said("exec_poll", json!({"exec_id": "e", "after_seq": -1})),
        said("spawn", json!({"pids": 1e30})),
        said("spawn", json!({"image": null, "memory": true})),
        said("kill", json!({"container_id": "app", "wait": 1})),
        said("metrics", json!({"x": 1})),
        said("exec_input", json!({"exec_id": "e", "signal": "STOP"})),
        said(
            "fs_batch",
            json!({"container_id": "app", "operations": [{"op": "read"}]}),
        ),
    ];
    insta::assert_snapshot!(cases.join("\n"), @r#"
    invalid_argument: `cmd` must be a list of strings, at least 1, not "ls -l"
    hint: cmd: Program and arguments; no shell: for one, ["sh","-c","..."]
    invalid_argument: `cmd` must be a list of strings, at least 1, not an empty list
    hint: cmd: Program and arguments; no shell: for one, ["sh","-c","..."]
    invalid_argument: `cmd[1]` must be a string, not 5
    hint: correct it and call again
    invalid_argument: `exec_id` is missing: it must be a string
    hint: add it and call again
    invalid_argument: `wait_s` must be a number from 0 to 50, not 51
    hint: correct it and call again
    invalid_argument: `after_seq` must be a whole number of at least 0, not -1
    hint: after_seq: The last next_seq; 0: from the start
    invalid_argument: `pids` must be a whole number from 0 to 4294967295, not 1e+30
    hint: correct it and call again
    invalid_argument: `memory` must be a string or a number, not true
    hint: memory: Such as 512m
    invalid_argument: there is no argument `wait`
    hint: known are: container_id, force
    invalid_argument: there is no argument `x`
    hint: call it without arguments
    invalid_argument: `signal` must be one of "TERM", "KILL", "INT", "HUP", "USR1", "USR2", "WINCH", not "STOP"
    hint: correct it and call again
    invalid_argument: `operations[0].path` is missing: it must be a string
    hint: add it and call again
    "#);
}

#[test]
fn an_output_schema_hides_no_error() {
    for tool in listed() {
        let schema = tool.output_schema.unwrap();
        assert!(!schema.contains_key("required"), "{}", tool.name);
        for word in ["code", "message", "hint", "current_etag"] {
            assert!(
                schema["properties"].get(word).is_none(),
                "{} {word}",
                tool.name
            );
        }
    }
}

#[test]
fn only_the_operator_is_told_of_admin_tools() {
    let names = |is_admin| {
        let listed = Table::new(Toolsets::ALL).list(is_admin);
        listed
            .into_iter()
            .map(|tool| tool.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!((names(true).len(), names(false).len()), (21, 17));
    assert!(!names(false).contains(&"reconcile".to_owned()));
    let of = |groups| Table::new(Toolsets::parse(groups).unwrap());
    assert_eq!(of("workspace").list(true).len(), 17);
    assert_eq!(of("admin").list(false).len(), 0);
}
