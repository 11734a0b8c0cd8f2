//! Writes values as TOML.

use super::catalogue::Setting;
use super::kind::Kind;

/// The replacement for a secret.
pub(super) const MASK: &str = "***";

/// The values of a setting as TOML. Secrets are masked.
pub(super) fn literal(setting: &Setting, values: &[String]) -> String {
    let one = |value: &String| {
        if setting.is_secret {
            quoted(MASK)
        } else {
            scalar(setting.kind, value)
        }
    };
    let values: Vec<String> = values.iter().map(one).collect();
    if setting.is_list {
        return format!("[{}]", values.join(", "));
    }
    values.concat()
}

fn scalar(kind: Kind, value: &str) -> String {
    let is_number = || value.parse::<f64>().is_ok_and(f64::is_finite);
    match kind {
        Kind::Boolean => is_true(value).to_string(),
        Kind::Integer | Kind::Number if is_number() => value.to_owned(),
        Kind::Integer | Kind::Number | Kind::Size | Kind::Text => quoted(value),
    }
}

/// Parses a boolean as clap parses one from the environment.
fn is_true(value: &str) -> bool {
    let value = value.to_lowercase();
    matches!(value.as_str(), "y" | "yes" | "t" | "true" | "on" | "1")
}

/// A basic string. JSON escapes everything that TOML does, except DEL.
pub(crate) fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_string_is_read_back() {
        let text = "a\"b\\c\n\u{7f}\u{1b}\u{9b}ü";
        let document = format!("x = {}", quoted(text));
        let read = toml::de::DeTable::parse(&document).expect("TOML");
        let value = read.get_ref().get("x").expect("it is there");
        assert_eq!(value.get_ref().as_str(), Some(text));
    }
}
