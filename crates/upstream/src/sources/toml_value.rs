//! TOML as JSON.

use serde_json::{Map, Value};
use toml::de::{DeInteger, DeValue};

/// The same value. Dates become text.
pub fn json_of_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => integer(number),
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .map_or(Value::Null, Value::from),
        DeValue::Boolean(is_true) => Value::from(*is_true),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(values) => values
            .iter()
            .map(|value| json_of_toml(value.get_ref()))
            .collect(),
        DeValue::Table(table) => {
            let pairs = table
                .iter()
                .map(|(key, value)| (key.get_ref().to_string(), json_of_toml(value.get_ref())));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

fn integer(number: &DeInteger<'_>) -> Value {
    i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
}
