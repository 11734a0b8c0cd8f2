//! Token-Oriented Object Notation: JSON with fewer tokens. Arrays of equal objects become tables.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const INDENT: &str = "  ";

/// Renders a value.
pub(super) fn encode(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(object) => fields(&mut text, object, 0),
        Value::Array(array) => list(&mut text, "", array, 0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&scalar(value));
        }
    }
    text.trim_end_matches('\n').to_owned()
}

fn fields(text: &mut String, object: &Map<String, Value>, depth: usize) {
    for (name, value) in object {
        text.push_str(&INDENT.repeat(depth));
        field(text, &key(name), value, depth);
    }
}

/// One field; the indentation stands already.
fn field(text: &mut String, name: &str, value: &Value, depth: usize) {
    match value {
        Value::Object(object) => {
            let _ = writeln!(text, "{name}:");
            fields(text, object, depth + 1);
        }
        Value::Array(array) => list(text, name, array, depth),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = writeln!(text, "{name}: {}", scalar(value));
        }
    }
}

fn list(text: &mut String, name: &str, array: &[Value], depth: usize) {
    let count = array.len();
    if array.iter().all(is_scalar) {
        let values: Vec<String> = array.iter().map(scalar).collect();
        let _ = writeln!(
            text,
            "{}",
            format!("{name}[{count}]: {}", values.join(",")).trim_end()
        );
        return;
    }
    if let Some(columns) = columns(array) {
        let keys: Vec<String> = columns.iter().map(|column| key(column)).collect();
        let _ = writeln!(text, "{name}[{count}]{{{}}}:", keys.join(","));
        for row in array {
            let cells: Vec<String> = columns
                .iter()
                .map(|column| scalar(&row[column.as_str()]))
                .collect();
            let _ = writeln!(text, "{}{}", INDENT.repeat(depth + 1), cells.join(","));
        }
        return;
    }
    let _ = writeln!(text, "{name}[{count}]:");
    for item in array {
        let _ = write!(text, "{}- ", INDENT.repeat(depth + 1));
        match item {
            Value::Object(object) if !object.is_empty() => {
                for (index, (name, value)) in object.iter().enumerate() {
                    if index > 0 {
                        text.push_str(&INDENT.repeat(depth + 2));
                    }
                    field(text, &key(name), value, depth + 2);
                }
            }
            Value::Object(_) => text.push('\n'),
            Value::Array(inner) => list(text, "", inner, depth + 1),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let _ = writeln!(text, "{}", scalar(item));
            }
        }
    }
}

/// The names of the columns, if all rows are objects of scalars with the same names.
fn columns(array: &[Value]) -> Option<Vec<String>> {
    let first = array.first()?.as_object()?;
    let names: Vec<String> = first.keys().cloned().collect();
    let is_row = |value: &Value| {
        value.as_object().is_some_and(|row| {
            row.len() == names.len()
                && names
                    .iter()
                    .all(|name| row.get(name).is_some_and(is_scalar))
        })
    };
    (!names.is_empty() && array.iter().all(is_row)).then_some(names)
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if needs_quotes(text) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn needs_quotes(text: &str) -> bool {
    text.is_empty()
        || text.trim() != text
        || text.starts_with('-')
        || matches!(text, "true" | "false" | "null")
        || text.parse::<f64>().is_ok()
        || text.contains([':', '"', '\\', '[', ']', '{', '}', ','])
        || text.contains(char::is_control)
}

fn key(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if is_plain {
        return name.to_owned();
    }
    Value::String(name.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_objects_become_a_table() {
        let value = json!({
            "status": "success",
            "n": 3,
            "rows": [{"a": 1, "b": "x, y"}, {"a": 2, "b": "z"}],
            "tags": ["p", "true", ""],
            "none": [],
            "deep": {"k": null},
            "mixed": [1, {"q": 1, "r": [1, 2]}, [3]],
        });
        insta::assert_snapshot!(encode(&value), @r#"
        deep:
          k: null
        mixed[3]:
          - 1
          - q: 1
            r[2]: 1,2
          - [1]: 3
        n: 3
        none[0]:
        rows[2]{a,b}:
          1,"x, y"
          2,z
        status: success
        tags[3]: p,"true",""
        "#);
    }
}
