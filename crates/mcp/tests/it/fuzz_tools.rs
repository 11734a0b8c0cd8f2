//! Arbitrary arguments: the right error code, a server that survives, and nothing changed.
//!
//! The fields come from the schemas that clients see, so a new tool is tested as soon as it is
//! listed and has a line in [`base`].

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use hotcell_domain::Quota;
use hotcell_service::Settings;
use hotcell_testkit::arguments::{Handles, base, is_handle, nobody};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use crate::world::{Client, Said, World, call, ok, sh};

/// Random arguments per run.
const CASES: u32 = 600;

struct Fixture {
    _world: World,
    client: Client,
    tools: Vec<Tool>,
    real: Handles,
}

impl Fixture {
    /// A server with one container, one file and one ended exec, and no room for another container.
    async fn new() -> Self {
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
        let made = ok(&client, "spawn", json!({"persistent": true})).await;
        let container = made.structured["container_id"].as_str().unwrap().to_owned();
        let ran = sh(&client, &container, "mkdir d; echo kept > d/file").await;
        let exec = ran.structured["exec_id"].as_str().unwrap().to_owned();
        Self {
            tools: client.list_all_tools().await.unwrap(),
            real: Handles { container, exec },
            _world: world,
            client,
        }
    }

    /// All that a caller can see, without what reading changes.
    async fn state(&self) -> Value {
        let containers = ok(
            &self.client,
            "list_containers",
            json!({"include_stopped": true}),
        )
        .await;
        let mut containers = containers.structured;
        for container in containers["containers"].as_array_mut().unwrap() {
            for changes in ["last_used_at", "memory", "disk"] {
                container.as_object_mut().unwrap().remove(changes);
            }
        }
        let files = json!({"container_id": self.real.container, "recursive": true});
        let files = ok(&self.client, "fs_list", files).await.structured;
        let execs = json!({"include_finished": true});
        let execs = ok(&self.client, "list_execs", execs).await.structured;
        // Running ones may end meanwhile.
        let execs = execs["execs"].as_array().unwrap().iter();
        let execs: Vec<&Value> = execs.map(|exec| &exec["exec_id"]).collect();
        json!([containers, files, execs])
    }

    /// Calls a tool with one argument replaced or, with `None`, removed.
    async fn call(&self, tool: &str, on: &Handles, field: &str, value: Option<Value>) -> Said {
        let mut arguments = base(tool, on).unwrap_or_else(|| panic!("{tool} has no line in base"));
        let arguments_map = arguments.as_object_mut().unwrap();
        match value {
            Some(value) => arguments_map.insert(field.to_owned(), value),
            None => arguments_map.remove(field),
        };
        call(&self.client, tool, arguments).await
    }
}

fn fields(tool: &Tool) -> Vec<(String, Value)> {
    let properties = tool.input_schema["properties"].as_object().unwrap();
    properties
        .iter()
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect()
}

fn takes(schema: &Value, kind: &str) -> bool {
    let is = |value: &Value| value == kind || (kind == "integer" && value == "number");
    let kinds = &schema["type"];
    kinds
        .as_array()
        .map_or_else(|| is(kinds), |kinds| kinds.iter().any(is))
}

/// Values that are invalid for a field of this type.
fn wrong(schema: &Value) -> Vec<Value> {
    let all = [
        ("boolean", json!(true)),
        ("integer", json!(7)),
        ("number", json!(7.5)),
        ("string", json!("seven")),
        ("array", json!([])),
        ("array", json!([[null]])),
        ("object", json!({})),
        ("object", json!({"a": {"b": null}})),
    ];
    let mut wrong: Vec<Value> = Vec::new();
    wrong.extend(
        all.into_iter()
            .filter(|(kind, _)| !takes(schema, kind))
            .map(|(_, value)| value),
    );
    if takes(schema, "integer") {
        wrong.extend([json!(-1), json!(i64::MIN), json!(-1e300), json!(1e300)]);
    }
    if takes(schema, "array") {
        wrong.extend([json!([7]), json!([null]), json!([{"x": 1}])]);
    }
    if schema["type"] == "object" {
        wrong.extend([
            json!({"a": 7}),
            json!({"a": null}),
            json!({"": "x"}),
            json!({"\u{0}": "x"}),
        ]);
    }
    if schema["enum"].is_array() {
        wrong.extend([json!("seven"), json!("")]);
    }
    wrong
}

/// Values of the right type that nobody would send on purpose.
fn odd(schema: &Value) -> Vec<Value> {
    let long = "x".repeat(200_000);
    let mut odd = Vec::new();
    if takes(schema, "string") {
        let texts = [
            "",
            "\u{0}",
            "a\u{0}b",
            "\u{202e}\u{1f980}ä",
            "\n",
            "../..",
            "/",
            "%00",
            &long,
        ];
        odd.extend(texts.map(Value::from));
    }
    if takes(schema, "integer") {
        odd.extend([json!(0), json!(u32::MAX), json!(u64::MAX), json!(i64::MAX)]);
    }
    if takes(schema, "array") {
        odd.extend([
            json!(["\u{0}"]),
            json!([""]),
            json!(vec!["x"; 20_000]),
            json!([long]),
        ]);
    }
    if schema["type"] == "object" {
        odd.extend([json!({"A": "\u{0}"}), json!({"ä": "x"}), json!({"A": long})]);
    }
    odd
}

/// Whether a value may do what the test must not do to its own container, or start a program of the
/// test's choice on this host, which the fake engine does not isolate.
fn is_dangerous(tool: &str, field: &str) -> bool {
    tool == "kill" || (tool, field) == ("exec_start", "cmd")
}

/// Whether a field is refused as unavailable, whatever its value.
fn is_not_there_yet(tool: &str, field: &str) -> bool {
    tool == "execute_code" && ["packages", "stateful", "restart"].contains(&field)
}

fn code(said: &Said) -> &str {
    if !said.is_error {
        return "ok";
    }
    assert!(said.structured["message"].is_string() && said.structured["hint"].is_string());
    said.structured["code"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_field_cannot_be_is_an_invalid_argument_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let before = fixture.state().await;
    let mut tried = 0;
    for tool in &fixture.tools {
        for (field, schema) in fields(tool) {
            for value in wrong(&schema) {
                let said = fixture
                    .call(&tool.name, &fixture.real, &field, Some(value.clone()))
                    .await;
                assert_eq!(
                    code(&said),
                    "invalid_argument",
                    "{} {field}={value}: {}",
                    tool.name,
                    said.text
                );
                tried += 1;
            }
        }
        let extra = fixture
            .call(&tool.name, &fixture.real, "surprise", Some(json!(1)))
            .await;
        assert_eq!(
            code(&extra),
            "invalid_argument",
            "{}: {}",
            tool.name,
            extra.text
        );
        assert!(extra.text.contains("`surprise`"), "{}", extra.text);
        let required = tool.input_schema.get("required").and_then(Value::as_array);
        for field in required.into_iter().flatten().filter_map(Value::as_str) {
            for missing in [None, Some(Value::Null)] {
                let said = fixture
                    .call(&tool.name, &fixture.real, field, missing)
                    .await;
                assert_eq!(
                    code(&said),
                    "invalid_argument",
                    "{} without {field}",
                    tool.name
                );
                assert!(
                    said.text.contains(&format!("`{field}` is missing")),
                    "{}",
                    said.text
                );
            }
        }
    }
    assert!(tried > 500, "{tried}");
    assert_eq!(fixture.state().await, before);
}

/// The schema of one operation of `fs_batch`.
fn operation(tools: &[Tool]) -> Value {
    let batch = tools.iter().find(|tool| tool.name == "fs_batch").unwrap();
    batch.input_schema["properties"]["operations"]["items"].clone()
}

/// A valid operation of each kind, on files that do not exist.
fn operations() -> Vec<Value> {
    vec![
        json!({"op": "read", "path": "no/such"}),
        json!({"op": "write", "path": "d/file", "content": "x", "if_match_etag": "00"}),
        json!({"op": "delete", "path": "no/such"}),
        json!({"op": "move", "path": "no/such", "dest_path": "to"}),
        json!({"op": "copy", "path": "no/such", "dest_path": "to"}),
        json!({"op": "mkdir", "path": "d/file/sub"}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_of_an_operation_that_is_wrong_or_odd_fails_the_batch_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let schema = operation(&fixture.tools);
    let fields = schema["properties"].as_object().unwrap();
    for known in ["op", "path", "dest_path", "content", "encoding"] {
        assert!(fields.contains_key(known), "{schema}");
    }
    let before = fixture.state().await;
    let mut tried = 0;
    let mut cases = Vec::new();
    for (field, schema) in fields {
        let wrong = wrong(schema).into_iter().map(|value| (value, true));
        let odd = odd(schema).into_iter().map(|value| (value, false));
        cases.extend(wrong.chain(odd).map(|case| (field.as_str(), case)));
    }
    cases.push(("surprise", (json!(1), true)));
    for step in operations() {
        for (field, (value, is_wrong)) in &cases {
            // A new directory may have any name.
            if step["op"] == "mkdir" && *field == "path" && !is_wrong {
                continue;
            }
            let mut step = step.clone();
            step[*field] = value.clone();
            // Earlier operations are undone, or were never done.
            let good = json!({"op": "mkdir", "path": "made"});
            let said = fixture
                .call(
                    "fs_batch",
                    &fixture.real,
                    "operations",
                    Some(json!([good, step])),
                )
                .await;
            let code = code(&said);
            let short = said.text.chars().take(300).collect::<String>();
            let is_refused = !["ok", "internal", "unavailable"].contains(&code);
            assert!(is_refused, "{field} of {}: {short}", step["op"]);
            if *is_wrong {
                assert_eq!(
                    code, "invalid_argument",
                    "{field} of {}: {short}",
                    step["op"]
                );
            }
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried}");
    assert_eq!(fixture.state().await, before);
    // The same batch without the error succeeds.
    let good = json!([{"op": "mkdir", "path": "made"}]);
    let said = fixture.call("fs_batch", &fixture.real, "operations", Some(good));
    assert_eq!(code(&said.await), "ok");
    assert_ne!(fixture.state().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_values_for_what_is_not_there_change_nothing() {
    let fixture = Fixture::new().await;
    let before = fixture.state().await;
    for tool in &fixture.tools {
        for (field, schema) in fields(tool) {
            for value in odd(&schema) {
                let said = fixture
                    .call(&tool.name, &nobody(), &field, Some(value.clone()))
                    .await;
                let is_read = tool.annotations.as_ref().unwrap().read_only_hint == Some(true);
                let allowed: &[&str] = match (&*tool.name, is_handle(&field)) {
                    ("spawn" | "execute_code" | "run_python", _) => &[
                        "invalid_argument",
                        "denied",
                        "resource_exhausted",
                        "unavailable",
                    ],
                    (_, true) => &["not_found"],
                    _ if is_read && said.structured.get("containers").is_some() => &["ok"],
                    _ => &[
                        "invalid_argument",
                        "not_found",
                        "denied",
                        "resource_exhausted",
                    ],
                };
                let short = said.text.chars().take(300).collect::<String>();
                assert!(
                    allowed.contains(&code(&said)),
                    "{} {field}: {short}",
                    tool.name
                );
            }
        }
    }
    assert_eq!(fixture.state().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_values_for_what_is_there_are_answered_and_a_refusal_changes_nothing() {
    let fixture = Fixture::new().await;
    for tool in &fixture.tools {
        for (field, schema) in fields(tool) {
            if is_dangerous(&tool.name, &field) {
                continue;
            }
            for value in odd(&schema) {
                let before = fixture.state().await;
                let said = fixture
                    .call(&tool.name, &fixture.real, &field, Some(value))
                    .await;
                let short = said.text.chars().take(300).collect::<String>();
                assert!(
                    !["internal", "unavailable"].contains(&code(&said))
                        || tool.name == "spawn"
                        || is_not_there_yet(&tool.name, &field),
                    "{} {field}: {short}",
                    tool.name
                );
                if said.is_error {
                    assert_eq!(
                        fixture.state().await,
                        before,
                        "{} {field}: {short}",
                        tool.name
                    );
                }
            }
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        "[a-z0-9./*_-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map("[a-z_]{0,12}", inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<JsonObject>().into()),
        ]
    })
}

#[test]
fn random_arguments_are_answered_and_a_refusal_changes_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let cases: Vec<(String, String)> = fixture
        .tools
        .iter()
        .flat_map(|tool| {
            let fields = fields(tool).into_iter().map(|(field, _)| field);
            fields
                .chain(["surprise".to_owned()])
                .map(|field| (tool.name.to_string(), field))
        })
        .filter(|(tool, field)| !is_dangerous(tool, field) && !is_not_there_yet(tool, field))
        .collect();
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let strategy = (proptest::sample::select(cases), any_json());
    let outcome = TestRunner::new(config).run(&strategy, |((tool, field), value)| {
        runtime.block_on(async {
            let before = fixture.state().await;
            let said = fixture
                .call(&tool, &fixture.real, &field, Some(value))
                .await;
            prop_assert!(
                !["internal", "unavailable"].contains(&code(&said)),
                "{}",
                said.text
            );
            if said.is_error {
                prop_assert_eq!(fixture.state().await, before);
            }
            Ok(())
        })
    });
    outcome.unwrap();
    // Its tasks must end before its runtime does.
    let _in = runtime.enter();
    drop(fixture);
}
