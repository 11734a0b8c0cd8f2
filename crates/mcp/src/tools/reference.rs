//! Generates docs/reference/tools.md from what a model is shown. Only for tests.

use std::fmt::Write;
use std::path::Path;

use rmcp::model::Tool as ToolDescription;
use serde_json::Value;

use super::{ENTRIES, ToolEntry};
use crate::Toolset;

/// What writes the page anew.
const REFRESH: &str = "HOTCELL_GOLDEN=write cargo test -p hotcell-mcp --lib reference";

const HEADING: &str = "# Tools

<!-- Generated from the schemas that clients are given; a test keeps it fresh. Do not edit. -->

`--toolsets` chooses which groups a server offers. An argument without \"required\" may be left out. Every tool answers with structured
content and the same as text; a tool that cannot do its work answers with `isError` and `{code, message, hint}`.
";

fn page() -> String {
    let mut page = HEADING.to_owned();
    for (set, title) in [
        (Toolset::Code, "Code: run a snippet now"),
        (
            Toolset::Codemode,
            "Code mode: scripts that call other MCP servers",
        ),
        (
            Toolset::Workspace,
            "Workspace: containers, commands and files",
        ),
        (Toolset::Admin, "Admin: for the operator"),
    ] {
        let _ = write!(page, "\n## {title}\n");
        let entries = ENTRIES.iter().map(|entry| entry());
        for entry in entries.filter(|entry| entry.set == set) {
            describe(&entry, &mut page);
        }
    }
    page
}

fn describe(entry: &ToolEntry, page: &mut String) {
    let tool = &entry.listed;
    let about = tool.description.as_deref().unwrap_or_default();
    let _ = write!(
        page,
        "\n### {}\n\n{}\n\n*{}*\n",
        tool.name,
        quoted(about),
        hints(tool)
    );
    let schema = Value::Object((*tool.input_schema).clone());
    rows("argument", &schema, page);
    if let Some(output) = &tool.output_schema {
        rows("answer", &Value::Object((**output).clone()), page);
    }
}

fn hints(tool: &ToolDescription) -> String {
    let Some(hints) = &tool.annotations else {
        return String::new();
    };
    let word =
        |is: Option<bool>, yes: &str, no: &str| if is == Some(true) { yes } else { no }.to_owned();
    let words = [
        word(hints.read_only_hint, "reads only", "changes something"),
        word(hints.destructive_hint, "may remove or replace", ""),
        word(
            hints.idempotent_hint,
            "repeating it changes nothing more",
            "",
        ),
        word(hints.open_world_hint, "may act outside the containers", ""),
    ];
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" · ")
}

/// The fields of an object, one row each. Nested fields are left to the schema itself.
fn rows(what: &str, schema: &Value, page: &mut String) {
    let Some(fields) = schema["properties"]
        .as_object()
        .filter(|fields| !fields.is_empty())
    else {
        return;
    };
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let _ = write!(page, "\n| {what} | type | |\n|---|---|---|\n");
    for (name, field) in fields {
        let about = field["description"].as_str().unwrap_or_default();
        let must = if what == "argument" && is_required(name) {
            "**required**; "
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "| `{name}` | {} | {must}{} |",
            kind(field),
            quoted(about).replace('\n', " ")
        );
    }
}

fn kind(field: &Value) -> String {
    let choices = field["enum"].as_array().map(|choices| {
        let choices = choices.iter().filter_map(Value::as_str);
        choices
            .map(|choice| format!("`{choice}`"))
            .collect::<Vec<_>>()
            .join(", ")
    });
    let mut kind = choices.unwrap_or_else(|| match &field["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds = kinds
                .iter()
                .filter_map(Value::as_str)
                .filter(|kind| *kind != "null");
            kinds.collect::<Vec<_>>().join(" or ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "object".to_owned(),
    });
    if let (Some(least), Some(most)) = (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        let _ = write!(kind, ", {least} to {most}");
    }
    if !field["default"].is_null() {
        let _ = write!(kind, ", default `{}`", field["default"]);
    }
    kind
}

fn quoted(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[test]
fn the_page_of_tools_in_the_repository_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/tools.md");
    let generated = page();
    if std::env::var_os("HOTCELL_GOLDEN").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, &generated).expect("write the page");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == generated,
        "{} is stale: run `{REFRESH}`",
        path.display()
    );
}
