//! Generates docs/hotcell.schema.json, with which editors complete and check a file.

use serde_json::{Map, Value, json};

use super::catalogue::{Catalogue, Setting};
use super::kind::Kind;
use super::table::TABLES;

/// The dialect that most editors understand.
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

/// The schema, with a newline at its end.
pub(super) fn text(catalogue: &Catalogue) -> String {
    let schema = serde_json::to_string_pretty(&schema(catalogue));
    schema.expect("a value of JSON can be written") + "\n"
}

fn schema(catalogue: &Catalogue) -> Value {
    let mut sections = Map::new();
    for section in catalogue.sections() {
        let settings = catalogue.of_section(section);
        let keys = settings.map(|setting| (setting.key.clone(), of_setting(setting)));
        sections.insert(section.to_owned(), object(&keys.collect()));
    }
    for table in TABLES {
        let mut schema = (table.schema)();
        schema["description"] = json!(table.help);
        match table.path.split_once('.') {
            Some((section, key)) => sections[section]["properties"][key] = schema,
            None => drop(sections.insert(table.path.to_owned(), schema)),
        }
    }
    let mut schema = object(&sections);
    schema["$schema"] = json!(DIALECT);
    schema["title"] = json!("hotcell.toml");
    schema
}

fn object(properties: &Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn of_setting(setting: &Setting) -> Value {
    let mut value = match setting.kind {
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Integer => json!({ "type": "integer", "minimum": 0 }),
        Kind::Number => json!({ "type": "number", "minimum": 0 }),
        Kind::Size => json!({ "type": ["string", "integer"] }),
        Kind::Text => json!({ "type": "string" }),
    };
    if !setting.choices.is_empty() {
        value["enum"] = json!(setting.choices);
    }
    let mut schema = if setting.is_list {
        json!({ "type": "array", "items": value })
    } else {
        value
    };
    let default = setting.default.as_ref();
    let default = default.map(|default| format!(" (default: {default})"));
    schema["description"] = json!(format!("{}{}", setting.help, default.unwrap_or_default()));
    schema
}
