//! What a server says about its tools: bounded, and with a hash by which a change is noticed.

use std::collections::HashSet;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::bounds::{
    DEFINITION_BYTES_MAX, DEFINITIONS_BYTES_MAX, DESCRIPTION_BYTES_MAX, SCHEMA_DEPTH_MAX,
    SKIPPED_NAMED_MAX, TOOL_NAME_CHARS_MAX, TOOLS_MAX,
};
use crate::text::{on_one_line, quoted};

/// What one server offers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Definitions {
    /// What the server calls itself, on one line.
    pub title: Option<String>,
    /// Its version, on one line.
    pub version: Option<String>,
    /// How it wants to be used, in its words: quoted, never obeyed.
    pub instructions: Option<String>,
    /// Its tools, in its order.
    pub tools: Vec<ToolDefinition>,
    /// Definitions that were unusable: why, and how many of them.
    pub skipped: Vec<String>,
    /// How many were skipped altogether.
    pub skipped_count: usize,
    /// When it was listed, in seconds since 1970.
    pub seen_at_s: u64,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// 1 to 128 characters of `A-Za-z0-9_-./:`, and no dunder name.
    pub name: String,
    /// For people, on one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The server's words, bounded and with control characters escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON Schema: an object of bounded size and depth.
    pub input_schema: Value,
    /// A JSON Schema, if the tool answers with structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What the server claims about the tool's effects.
    #[serde(default)]
    pub annotations: Annotations,
    /// SHA-256 over everything above as the server sent it.
    #[serde(with = "hex")]
    pub hash: [u8; 32],
}

/// Claims of a server about a tool. They are hints: a server may lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// Changes nothing.
    pub read_only_hint: Option<bool>,
    /// May destroy something.
    pub destructive_hint: Option<bool>,
    /// Twice is the same as once.
    pub idempotent_hint: Option<bool>,
    /// Reaches beyond its own data.
    pub open_world_hint: Option<bool>,
}

/// A tool as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    annotations: Option<Value>,
}

/// Collects the definitions of one listing within the bounds.
#[derive(Default)]
pub(crate) struct Collector {
    tools: Vec<ToolDefinition>,
    names: HashSet<String>,
    bytes: usize,
    skipped: Vec<String>,
    skipped_count: usize,
}

impl Collector {
    /// Takes one tool, or notes why not.
    pub(crate) fn add(&mut self, sent: &RawValue) {
        match self.parse(sent) {
            Ok(tool) => {
                self.bytes += sent.get().len();
                self.names.insert(tool.name.clone());
                self.tools.push(tool);
            }
            Err(reason) => {
                self.skipped_count += 1;
                if self.skipped.len() < SKIPPED_NAMED_MAX {
                    self.skipped.push(reason);
                }
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tools.len() >= TOOLS_MAX
    }

    /// Notes that the listing was ended early.
    pub(crate) fn cut_off(&mut self, reason: &str) {
        self.skipped_count += 1;
        self.skipped.push(reason.to_owned());
    }

    fn parse(&self, sent: &RawValue) -> Result<ToolDefinition, String> {
        if self.is_full() {
            return Err(format!("more than {TOOLS_MAX} tools"));
        }
        let text = sent.get();
        if text.len() > DEFINITION_BYTES_MAX {
            return Err(format!(
                "a definition is larger than {DEFINITION_BYTES_MAX} bytes"
            ));
        }
        if self.bytes + text.len() > DEFINITIONS_BYTES_MAX {
            return Err(format!(
                "all definitions are larger than {DEFINITIONS_BYTES_MAX} bytes"
            ));
        }
        // Its error could quote what was sent.
        let sent: Sent = serde_json::from_str(text)
            .map_err(|_| "a definition is malformed or too deep".to_owned())?;
        check_name(&sent.name)?;
        if self.names.contains(&sent.name) {
            return Err(format!("tool `{}` is there twice", sent.name));
        }
        for schema in [&sent.input_schema, &sent.output_schema]
            .into_iter()
            .flatten()
        {
            check_schema(&sent.name, schema)?;
        }
        Ok(sent.into_definition())
    }

    pub(crate) fn finish(self) -> Definitions {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Definitions {
            tools: self.tools,
            skipped: self.skipped,
            skipped_count: self.skipped_count,
            seen_at_s: now.map_or(0, |since| since.as_secs()),
            ..Definitions::default()
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    let is_dunder = name.starts_with("__") && name.ends_with("__");
    let is_short = name.chars().count() <= TOOL_NAME_CHARS_MAX;
    if !name.is_empty() && is_short && !is_dunder && name.chars().all(legal) {
        return Ok(());
    }
    Err(format!(
        "a tool cannot be called `{}`",
        on_one_line(name, 64)
    ))
}

fn check_schema(tool: &str, schema: &Value) -> Result<(), String> {
    if !schema.is_object() {
        return Err(format!("a schema of tool `{tool}` is not an object"));
    }
    if depth(schema) > SCHEMA_DEPTH_MAX {
        return Err(format!(
            "a schema of tool `{tool}` is deeper than {SCHEMA_DEPTH_MAX} levels"
        ));
    }
    Ok(())
}

/// `serde_json` has parsed it, so it is not deeper than 128 levels.
fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(values) => values.values().map(depth).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
    };
    1 + below.unwrap_or(0)
}

impl Sent {
    fn into_definition(self) -> ToolDefinition {
        let hash = self.hash();
        let annotations = self.annotations.unwrap_or_default();
        let title = self
            .title
            .or_else(|| annotations["title"].as_str().map(str::to_owned));
        ToolDefinition {
            name: self.name,
            title: title.map(|title| on_one_line(&title, 256)),
            description: self
                .description
                .map(|text| quoted(&text, DESCRIPTION_BYTES_MAX).into_owned()),
            input_schema: self
                .input_schema
                .unwrap_or_else(|| serde_json::json!({ "type": "object" })),
            output_schema: self.output_schema,
            annotations: Annotations::parse(&annotations),
            hash,
        }
    }

    /// Independent of the order of keys. Annotations are a part of it because defaults of policy
    /// follow from them.
    fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(text.as_bytes());
        };
        add(&self.name);
        add(self.title.as_deref().unwrap_or_default());
        add(self.description.as_deref().unwrap_or_default());
        for part in [&self.input_schema, &self.output_schema, &self.annotations] {
            add(&part.as_ref().map(canonical).unwrap_or_default());
        }
        hash.finalize().into()
    }
}

/// JSON text with sorted keys.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(canonical).collect();
            format!("[{}]", values.join(","))
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            let pairs: Vec<_> = keys
                .into_iter()
                .map(|key| format!("{}:{}", Value::from(key.as_str()), canonical(&map[key])))
                .collect();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

impl Annotations {
    /// Whatever is not a boolean is no claim.
    fn parse(sent: &Value) -> Self {
        Self {
            read_only_hint: sent["readOnlyHint"].as_bool(),
            destructive_hint: sent["destructiveHint"].as_bool(),
            idempotent_hint: sent["idempotentHint"].as_bool(),
            open_world_hint: sent["openWorldHint"].as_bool(),
        }
    }
}

/// A hash as text.
mod hex {
    use std::fmt::Write;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        hash: &[u8; 32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(64);
        for byte in hash {
            // It cannot fail: a string grows.
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[u8; 32], D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let mut hash = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(D::Error::custom("a hash has 64 digits"));
        }
        for (index, byte) in hash.iter_mut().enumerate() {
            let digits = &text[index * 2..index * 2 + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(D::Error::custom)?;
        }
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(tools: &[String]) -> Definitions {
        let mut collector = Collector::default();
        for tool in tools {
            collector.add(&RawValue::from_string(tool.clone()).unwrap());
        }
        collector.finish()
    }

    fn one(tool: &str) -> Definitions {
        collected(&[tool.to_owned()])
    }

    #[test]
    fn hostile_names_are_skipped_and_told() {
        let long = "x".repeat(300);
        let names = ["__class__", "", "a b", "a\u{1b}[2J", "ok", long.as_str()];
        let tools =
            names.map(|name| serde_json::json!({ "name": name, "inputSchema": {} }).to_string());
        let definitions = collected(&tools);
        assert_eq!(definitions.tools.len(), 1);
        assert_eq!(definitions.tools[0].name, "ok");
        assert_eq!(definitions.skipped_count, 5);
        assert!(
            definitions
                .skipped
                .iter()
                .all(|reason| !reason.contains('\u{1b}') && reason.len() < 200)
        );
    }

    #[test]
    fn a_schema_that_is_deep_or_huge_or_no_object_is_skipped() {
        let deep =
            |levels: usize| format!("{}{{}}{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let tool = |schema: &str| format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
        assert_eq!(one(&tool(&deep(20))).tools.len(), 1);
        for schema in [
            deep(60),
            deep(200),
            "7".to_owned(),
            format!("{{\"a\":\"{}\"}}", "x".repeat(300_000)),
        ] {
            let definitions = one(&tool(&schema));
            assert_eq!((definitions.tools.len(), definitions.skipped_count), (0, 1));
        }
    }

    #[test]
    fn a_hundred_thousand_tools_are_cut_off_and_counted() {
        let tools: Vec<_> = (0..100_000)
            .map(|number| format!(r#"{{"name":"t{number}"}}"#))
            .collect();
        let definitions = collected(&tools);
        assert_eq!(definitions.tools.len(), TOOLS_MAX);
        assert_eq!(definitions.skipped_count, 100_000 - TOOLS_MAX);
        assert_eq!(definitions.skipped.len(), SKIPPED_NAMED_MAX);
    }

    #[test]
    fn a_description_is_escaped_and_cut() {
        let text = format!("\u{1b}[2Jdo {}", "x".repeat(20_000));
        let definitions = one(&serde_json::json!({ "name": "t", "description": text }).to_string());
        let shown = definitions.tools[0].description.as_deref().unwrap();
        assert!(shown.starts_with("\\u{1b}[2Jdo x"), "{}", &shown[..20]);
        assert!(shown.len() <= DESCRIPTION_BYTES_MAX + 3);
    }

    #[test]
    fn the_hash_changes_with_what_matters_and_not_with_the_order_of_keys() {
        let hash = |text: &str| one(text).tools[0].hash;
        let plain = hash(
            r#"{"name":"t","description":"d","inputSchema":{"type":"object","properties":{}}}"#,
        );
        assert_eq!(
            plain,
            hash(
                r#"{"inputSchema":{"properties":{},"type":"object"},"description":"d","name":"t"}"#
            )
        );
        for other in [
            r#"{"name":"u","description":"d","inputSchema":{"type":"object","properties":{}}}"#,
            r#"{"name":"t","description":"e","inputSchema":{"type":"object","properties":{}}}"#,
            r#"{"name":"t","description":"d","inputSchema":{"type":"object"}}"#,
            r#"{"name":"t","description":"d","inputSchema":{"type":"object","properties":{}},"outputSchema":{}}"#,
            r#"{"name":"t","description":"d","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true}}"#,
        ] {
            assert_ne!(plain, hash(other), "{other}");
        }
    }

    #[test]
    fn definitions_survive_the_disk() {
        let text = r#"{"name":"t","title":"T","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":3}}"#;
        let definitions = one(text);
        assert_eq!(
            definitions.tools[0].annotations,
            Annotations {
                read_only_hint: Some(true),
                ..Annotations::default()
            }
        );
        let stored = serde_json::to_string(&definitions).unwrap();
        assert_eq!(
            serde_json::from_str::<Definitions>(&stored).unwrap(),
            definitions
        );
    }
}
