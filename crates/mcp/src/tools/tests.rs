//! The size of the tool list, and how invalid arguments are refused.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value, json};

use super::{ToolError, ToolTable, check};
use crate::Toolsets;

/// Limit on the definitions of all tools that a model reads: names, descriptions, input schemas.
const READ_BYTES_MAX: usize = 16 << 10;

/// Limit on the output schemas of all tools.
const OUTPUT_BYTES_MAX: usize = 24_000;

fn listed() -> Vec<rmcp::model::Tool> {
    ToolTable::new(Toolsets::ALL).list(true)
}

fn size(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).unwrap().len()
}

/// A tool's answer to these arguments, as text.
fn said(tool: &str, arguments: Value) -> String {
    let table = ToolTable::new(Toolsets::ALL);
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

/// The sizes of the parts, the sum last.
fn shares(part: impl Fn(&rmcp::model::Tool) -> usize) -> (usize, String) {
    let tools = listed();
    let total = tools.iter().map(&part).sum();
    let lines = tools
        .iter()
        .map(|tool| format!("{} {}", tool.name, part(tool)));
    let lines: Vec<String> = lines.collect();
    (total, format!("{}\ntotal {total}", lines.join("\n")))
}

#[test]
fn the_tool_list_is_short_enough_for_a_model() {
    let (total, shares) = shares(|tool| {
        let read = json!({
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.input_schema,
        });
        size(&read)
    });
    assert!(total <= READ_BYTES_MAX, "{shares}");
}

#[test]
fn output_schemas_are_bounded_too() {
    let (total, shares) = shares(|tool| tool.output_schema.as_ref().map_or(0, size));
    assert!(total <= OUTPUT_BYTES_MAX, "{shares}");
}

/// Visits every property of a schema, with its path.
fn properties(schema: &JsonObject, path: &str, visit: &mut impl FnMut(&str, &JsonObject)) {
    let known = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in known.into_iter().flatten() {
        let (path, inner) = (format!("{path}.{name}"), inner.as_object().unwrap());
        visit(&path, inner);
        properties(inner, &path, visit);
        if let Some(items) = inner.get("items").and_then(Value::as_object) {
            properties(items, &path, visit);
        }
    }
}

#[test]
fn every_argument_is_described_with_its_default_and_its_limits() {
    let mut count = 0;
    for tool in listed() {
        assert!(
            tool.description
                .as_ref()
                .is_some_and(|text| text.len() > 20)
        );
        let required: Vec<&str> = check::required_of(&tool.input_schema).collect();
        properties(&tool.input_schema, &tool.name, &mut |path, schema| {
            count += 1;
            let text = schema.get("description").and_then(Value::as_str);
            let text = text.unwrap_or_else(|| panic!("{path} is not described"));
            assert!((3..=140).contains(&text.len()), "{path}: {text}");
            let name = path.rsplit('.').next().unwrap();
            let is_flag = schema.get("type") == Some(&json!("boolean"));
            let is_told = schema.contains_key("default") || name == "keep_stdin_open";
            assert!(!is_flag || required.contains(&name) || is_told, "{path}");
        });
    }
    assert!(count > 70, "{count} arguments were looked at");
}

#[test]
fn output_schemas_name_nested_fields() {
    let mut objects = 0;
    for tool in listed() {
        let Some(schema) = tool.output_schema else {
            let may_show_pictures = ["fs_read", "sandbox_read_file", "execute_code"];
            assert!(may_show_pictures.contains(&&*tool.name), "{}", tool.name);
            continue;
        };
        properties(&schema, &tool.name, &mut |path, schema| {
            let items = schema.get("items").and_then(Value::as_object);
            for schema in items.into_iter().chain([schema]) {
                if schema.get("type") == Some(&json!("object")) {
                    objects += 1;
                    // A map has names that callers or operators choose.
                    let is_map = schema
                        .get("additionalProperties")
                        .is_some_and(Value::is_object);
                    assert!(is_map || schema.contains_key("properties"), "{path}");
                }
            }
        });
    }
    assert!(objects > 8, "{objects} nested objects were looked at");
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
    hint: cmd: Program and arguments, a word each, no shell: ["ls","-l"] or ["sh","-c","ls | wc"]
    invalid_argument: `cmd` must be a list of strings, at least 1, not an empty list
    hint: cmd: Program and arguments, a word each, no shell: ["ls","-l"] or ["sh","-c","ls | wc"]
    invalid_argument: `cmd[1]` must be a string, not 5
    hint: correct it and call again
    invalid_argument: `exec_id` is missing: it must be a string
    hint: add it and call again
    invalid_argument: `wait_s` must be a number from 0 to 50, not 51
    hint: wait_s: Seconds to wait for news
    invalid_argument: `after_seq` must be a whole number of at least 0, not -1
    hint: after_seq: The last `next_seq`; 0: from the start
    invalid_argument: `pids` must be a whole number from 1 to 4194304, not 1e+30
    hint: pids: Processes and threads; default 256
    invalid_argument: `memory` must be a string or a number, not true
    hint: memory: Such as 512m (the default); up to the operator's maximum, as cpus, pids and disk
    invalid_argument: there is no argument `wait`
    hint: known are: container_id, force
    invalid_argument: there is no argument `x`
    hint: call it without arguments
    invalid_argument: `signal` must be one of "TERM", "KILL", "INT", "HUP", "USR1", "USR2", "WINCH", not "STOP"
    hint: signal: Sent to all its processes
    invalid_argument: `operations[0].path` is missing: it must be a string
    hint: add it and call again
    "#);
}

#[test]
fn an_output_schema_hides_no_error() {
    for tool in listed() {
        let Some(schema) = tool.output_schema else {
            continue;
        };
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
        let listed = ToolTable::new(Toolsets::ALL).list(is_admin);
        listed
            .into_iter()
            .map(|tool| tool.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!((names(true).len(), names(false).len()), (26, 22));
    assert!(!names(false).contains(&"reconcile".to_owned()));
    let of = |groups| ToolTable::new(Toolsets::parse(groups).unwrap());
    assert_eq!(of("workspace").list(true).len(), 17);
    assert_eq!(of("code").list(false).len(), 4);
    assert_eq!(of("admin").list(false).len(), 0);
}
