//! The schemas of tools, derived from their types and shortened.
//!
//! A model reads the whole list before its first word, so it contains only what helps: no
//! `$schema`, titles, integer formats or `null`s.
//!
//! Output schemas name every field, including nested ones, but require none: clients also validate
//! the structured content of errors against them, and a missing required field would hide the
//! error.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema of a type, inlined and without what [`crate::tools::check`] does not need.
pub(super) fn of<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    slim(&mut schema);
    let Value::Object(mut schema) = schema else {
        unreachable!("parameters and outputs are structs");
    };
    schema.remove("description");
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(JsonObject::new()));
    schema
}

/// The input schema for clients: descriptions, defaults and limits.
pub(super) fn shown_input(schema: &JsonObject) -> JsonObject {
    let mut shown = Value::Object(schema.clone());
    each(&mut shown, &mut |schema| {
        schema.retain(|key, value| match key.as_str() {
            "additionalProperties" => value.is_object(),
            // A maximum that only comes from the integer type is not a chosen limit.
            "maximum" => value.as_f64().is_some_and(|max| max < f64::from(u32::MAX)),
            "minimum" => value.as_f64() != Some(0.0),
            _ => true,
        });
    });
    object(shown)
}

pub(super) fn shown_output<T: JsonSchema>() -> JsonObject {
    let mut shown = Value::Object(of::<T>());
    each(&mut shown, &mut |schema| {
        schema.retain(|key, value| match key.as_str() {
            // The values of a map.
            "additionalProperties" => value.is_object(),
            "type" | "properties" | "items" | "description" | "enum" => true,
            _ => false,
        });
    });
    object(shown)
}

fn properties(schema: &mut JsonObject) -> impl Iterator<Item = &mut Value> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties
        .into_iter()
        .flat_map(|properties| properties.values_mut())
}

fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else {
        unreachable!("it was made from an object");
    };
    object
}

/// Visits a schema and all nested schemas.
fn each(schema: &mut Value, visit: &mut impl FnMut(&mut JsonObject)) {
    let Value::Object(schema) = schema else {
        return;
    };
    visit(schema);
    properties(schema).for_each(|inner| each(inner, visit));
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key) {
            each(inner, visit);
        }
    }
}

fn slim(schema: &mut Value) {
    each(schema, &mut |schema| {
        if let Some(Value::Array(any)) = schema.remove("anyOf") {
            let is_null = |schema: &Value| schema["type"] == "null";
            if let Some(Value::Object(only)) = any.into_iter().find(|inner| !is_null(inner)) {
                schema.extend(only);
            }
        }
        if let Some(max) = schema
            .remove("format")
            .and_then(|format| integer_max(&format))
        {
            schema.entry("maximum").or_insert(max.into());
        }
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        schema.remove("title");
        without_null(schema);
    });
}

/// `["string", "null"]` becomes `"string"`: an optional field is simply not required.
fn without_null(schema: &mut JsonObject) {
    let Some(Value::Array(types)) = schema.get_mut("type") else {
        return;
    };
    types.retain(|kind| kind != "null");
    if let [only] = types.as_slice() {
        let only = only.clone();
        schema.insert("type".to_owned(), only);
    }
}

/// The largest value of an integer format.
fn integer_max(format: &Value) -> Option<u64> {
    match format.as_str()? {
        "uint8" => Some(u8::MAX.into()),
        "uint16" => Some(u16::MAX.into()),
        "uint32" => Some(u32::MAX.into()),
        _ => None,
    }
}
