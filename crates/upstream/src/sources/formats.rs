//! How programs write down their servers.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toml::de::DeTable;

use super::comments::without_comments;
use super::toml_value::json_of_toml;

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `mcpServers`, or `servers`, or the file is one server, named as the file.
    McpServers,
    /// The same, and `projects.DIRECTORY.mcpServers`: those of this directory first.
    ClaudeCode,
    /// `context_servers`, with comments.
    Zed,
    /// TOML: `mcp_servers`.
    Codex,
}

/// An entry that was not looked at yet.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) value: Value,
    /// Where its program is to run.
    pub(super) directory: Option<PathBuf>,
}

impl Format {
    pub(super) fn language(self) -> &'static str {
        match self {
            Self::McpServers | Self::ClaudeCode | Self::Zed => "JSON",
            Self::Codex => "TOML",
        }
    }

    /// The entries of a text; `None` if it is none of this format.
    pub(super) fn entries(self, text: &str, stem: &str, directory: &Path) -> Option<Vec<Named>> {
        if self == Self::Codex {
            let table = DeTable::parse(text).ok()?;
            let servers = table.get_ref().get("mcp_servers");
            return Some(named(
                servers.map(|servers| json_of_toml(servers.get_ref())),
                None,
            ));
        }
        let mut value = serde_json::from_str::<Value>(text);
        if value.is_err() {
            value = serde_json::from_str(&without_comments(text));
        }
        let Ok(Value::Object(mut fields)) = value else {
            return None;
        };
        Some(match self {
            Self::Zed => named(fields.remove("context_servers"), None),
            Self::ClaudeCode => of_claude_code(fields, directory),
            Self::McpServers | Self::Codex => of_servers(fields, stem),
        })
    }
}

fn of_servers(mut fields: Map<String, Value>, stem: &str) -> Vec<Named> {
    for key in ["mcpServers", "servers"] {
        if let Some(servers) = fields.remove(key) {
            return named(Some(servers), None);
        }
    }
    let is_one = fields.contains_key("command") || fields.contains_key("url");
    if is_one {
        return vec![Named {
            name: stem.to_owned(),
            value: Value::Object(fields),
            directory: None,
        }];
    }
    Vec::new()
}

fn of_claude_code(mut fields: Map<String, Value>, here: &Path) -> Vec<Named> {
    let mut projects: Vec<(String, Value)> = match fields.remove("projects") {
        Some(Value::Object(projects)) => projects.into_iter().collect(),
        Some(_) | None => Vec::new(),
    };
    // Those of this directory first; the others in their order.
    projects.sort_by_key(|(directory, _)| Path::new(directory) != here);
    let is_here = |directory: &str| Path::new(directory) == here;
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (directory, mut project) in projects {
        let servers = project.get_mut("mcpServers").map(Value::take);
        let found = named(servers, Some(Path::new(&directory)));
        if is_here(&directory) {
            first.extend(found);
        } else {
            last.extend(found);
        }
    }
    first.extend(named(fields.remove("mcpServers"), None));
    first.extend(last);
    first
}

fn named(servers: Option<Value>, directory: Option<&Path>) -> Vec<Named> {
    let Some(Value::Object(servers)) = servers else {
        return Vec::new();
    };
    servers
        .into_iter()
        .map(|(name, value)| Named {
            name,
            value,
            directory: directory.map(Path::to_owned),
        })
        .collect()
}
