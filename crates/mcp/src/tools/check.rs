//! Validates arguments against a tool's schema, with messages that name the field.
//!
//! Serde says what is wrong but not where. So arguments are checked against the schema first, and
//! then deserialized.

use std::fmt::Write as _;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::ToolError;

/// The deepest nesting that is checked; our schemas are less deep.
const DEPTH_MAX: usize = 8;

/// Checks arguments. An optional argument that is `null` is removed, because some clients send it
/// for a missing one.
pub(super) fn check(schema: &JsonObject, arguments: &mut JsonObject) -> Result<(), ToolError> {
    arguments.retain(|_, value| !value.is_null());
    check_object(schema, arguments, "", 0)
}

fn check_object(
    schema: &JsonObject,
    object: &JsonObject,
    path: &str,
    depth: usize,
) -> Result<(), ToolError> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let known = |name: &str| properties.and_then(|known| known.get(name)?.as_object());
    let rest = schema.get("additionalProperties");
    for name in required(schema) {
        if !object.contains_key(name) {
            return Err(missing(path, name, known(name)));
        }
    }
    for (name, value) in object {
        match (known(name), rest) {
            (Some(inner), _) => check_value(inner, value, &join(path, name), depth + 1)?,
            (None, Some(Value::Object(inner))) => {
                check_value(inner, value, &join(path, name), depth + 1)?;
            }
            (None, _) => return Err(unknown(path, name, properties)),
        }
    }
    Ok(())
}

fn check_value(
    schema: &JsonObject,
    value: &Value,
    path: &str,
    depth: usize,
) -> Result<(), ToolError> {
    let is_wrong = depth > DEPTH_MAX || !has_type(schema, value) || !is_in_bounds(schema, value);
    if is_wrong {
        return Err(wrong(schema, value, path));
    }
    match value {
        Value::Object(object) => check_object(schema, object, path, depth),
        Value::Array(items) => {
            let Some(inner) = schema.get("items").and_then(Value::as_object) else {
                return Ok(());
            };
            let mut items = items.iter().enumerate();
            items.try_for_each(|(at, item)| {
                check_value(inner, item, &format!("{path}[{at}]"), depth + 1)
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn has_type(schema: &JsonObject, value: &Value) -> bool {
    let is = |kind: &str| match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    };
    match schema.get("type") {
        Some(Value::String(kind)) => is(kind),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

fn is_in_bounds(schema: &JsonObject, value: &Value) -> bool {
    if let Some(Value::Array(words)) = schema.get("enum") {
        return words.contains(value);
    }
    let bound = |name| schema.get(name).and_then(Value::as_f64);
    match value {
        Value::Number(number) => number.as_f64().is_none_or(|size| {
            bound("minimum").is_none_or(|min| size >= min)
                && bound("maximum").is_none_or(|max| size <= max)
        }),
        Value::Array(items) => {
            let min = schema.get("minItems").and_then(Value::as_u64);
            min.is_none_or(|min| items.len() as u64 >= min)
        }
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => true,
    }
}

/// The required properties of an object.
#[cfg(test)]
pub(super) fn required_of(schema: &JsonObject) -> impl Iterator<Item = &str> {
    required(schema)
}

fn required(schema: &JsonObject) -> impl Iterator<Item = &str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

fn missing(path: &str, name: &str, schema: Option<&JsonObject>) -> ToolError {
    let expected = schema.map(expected).unwrap_or_default();
    ToolError::invalid(format!(
        "`{}` is missing: it must be {expected}",
        join(path, name)
    ))
    .with_hint("add it and call again")
}

fn unknown(path: &str, name: &str, known: Option<&JsonObject>) -> ToolError {
    let known: Vec<&str> = known
        .into_iter()
        .flat_map(|known| known.keys())
        .map(String::as_str)
        .collect();
    let hint = if known.is_empty() {
        "call it without arguments".to_owned()
    } else {
        format!("known are: {}", known.join(", "))
    };
    ToolError::invalid(format!("there is no argument `{}`", join(path, name))).with_hint(hint)
}

fn wrong(schema: &JsonObject, value: &Value, path: &str) -> ToolError {
    let message = format!(
        "`{path}` must be {}, not {}",
        expected(schema),
        given(value)
    );
    let hint = schema.get("description").and_then(Value::as_str);
    let hint = hint.map_or_else(
        || "correct it and call again".to_owned(),
        |description| format!("{path}: {description}"),
    );
    ToolError::invalid(message).with_hint(hint)
}

/// Describes what a schema expects.
fn expected(schema: &JsonObject) -> String {
    if let Some(Value::Array(words)) = schema.get("enum") {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return format!("one of {}", words.join(", "));
    }
    let mut text = match schema.get("type") {
        Some(Value::String(kind)) if kind == "array" => {
            let items = schema.get("items").and_then(Value::as_object);
            let kind = items.and_then(|items| items.get("type")?.as_str());
            format!("a list of {}s", kind.unwrap_or("value"))
        }
        Some(Value::String(kind)) => named(kind).to_owned(),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).map(named).collect();
            kinds.join(" or ")
        }
        _ => "something else".to_owned(),
    };
    let bound = |name| schema.get(name).filter(|bound| bound.is_number());
    match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) => write!(text, " from {min} to {max}"),
        (Some(min), None) => write!(text, " of at least {min}"),
        (None, Some(max)) => write!(text, " of at most {max}"),
        (None, None) => Ok(()),
    }
    .expect("writing to a string cannot fail");
    if let Some(min) = bound("minItems") {
        write!(text, ", at least {min}").expect("writing to a string cannot fail");
    }
    text
}

fn named(kind: &str) -> &str {
    match kind {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a string",
        "object" => "an object",
        other => other,
    }
}

/// Describes the given value; shows its content only if it is short.
fn given(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.len() <= 32 => value.to_string(),
        Value::String(_) => "that string".to_owned(),
        Value::Array(items) if items.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn join(path: &str, name: &str) -> String {
    let name = crate::text::truncate(name, 64);
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
