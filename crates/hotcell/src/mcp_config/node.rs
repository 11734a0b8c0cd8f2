//! An entry of a client's file, with its keys in the order in which people write them, and how it
//! looks in each language.

use serde_json::Value;

use crate::config::quoted;

/// A value of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Flag(bool),
    Number(u32),
    Text(String),
    List(Vec<String>),
    Table(Vec<(&'static str, Node)>),
}

impl Node {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// For comparing with what a file says.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Flag(flag) => Value::from(*flag),
            Self::Number(number) => Value::from(*number),
            Self::Text(text) => Value::from(text.as_str()),
            Self::List(texts) => texts.iter().map(String::as_str).collect(),
            Self::Table(fields) => fields
                .iter()
                .map(|(key, node)| ((*key).to_owned(), node.to_json()))
                .collect(),
        }
    }

    /// JSON over several lines. `indent` is that of the line on which it begins.
    pub(super) fn json_lines(&self, indent: &str, unit: &str) -> String {
        let Self::Table(fields) = self else {
            return self.one_line();
        };
        if fields.is_empty() {
            return "{}".to_owned();
        }
        let inner = format!("{indent}{unit}");
        let lines: Vec<String> = fields
            .iter()
            .map(|(key, node)| format!("{inner}\"{key}\": {}", node.json_lines(&inner, unit)))
            .collect();
        format!("{{\n{}\n{indent}}}", lines.join(",\n"))
    }

    /// The lines of a TOML table, without its heading.
    pub(super) fn toml_lines(&self) -> Vec<String> {
        self.fields()
            .iter()
            .map(|(key, node)| match node {
                Self::Table(fields) => {
                    let fields: Vec<String> = fields
                        .iter()
                        .map(|(key, node)| format!("{} = {}", quoted(key), node.one_line()))
                        .collect();
                    format!("{key} = {{ {} }}", fields.join(", "))
                }
                Self::Flag(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => {
                    format!("{key} = {}", node.one_line())
                }
            })
            .collect()
    }

    /// The lines of a YAML mapping.
    pub(super) fn yaml_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, node) in self.fields() {
            match node {
                Self::Table(fields) if !fields.is_empty() => {
                    lines.push(format!("{key}:"));
                    lines.extend(node.yaml_lines().iter().map(|line| format!("  {line}")));
                }
                Self::List(texts) if !texts.is_empty() => {
                    lines.push(format!("{key}:"));
                    lines.extend(texts.iter().map(|text| format!("  - {}", quoted(text))));
                }
                Self::Flag(_)
                | Self::Number(_)
                | Self::Text(_)
                | Self::List(_)
                | Self::Table(_) => {
                    lines.push(format!("{key}: {}", node.one_line()));
                }
            }
        }
        lines
    }

    fn fields(&self) -> &[(&'static str, Self)] {
        match self {
            Self::Table(fields) => fields,
            Self::Flag(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => &[],
        }
    }

    /// A value as JSON writes it, which TOML and YAML read as well.
    fn one_line(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quoted(text),
            Self::List(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("[{}]", texts.join(", "))
            }
            Self::Table(_) => "{}".to_owned(),
        }
    }
}
