//! Where entries come from: hotcell.toml, `MCP_SERVERS_CONFIG`, and the files of other programs.
//!
//! A file that is broken, huge or unreadable is a [`Finding`] and nothing more. Nothing that is found
//! here is started: that takes a call that names the server.

mod comments;
mod entry;
mod file;
mod formats;
mod places;
mod toml_value;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use self::comments::without_comments;
pub use self::entry::{EntryError, KEYS, entry_schema, parse_entry};
use self::formats::Format;
pub use self::places::Places;
pub use self::toml_value::json_of_toml;
use crate::name::ServerName;
use crate::settings::{Entry, Finding, Principals, Settings, Source};
use crate::text::on_one_line;

/// Entries of one file that are looked at.
const ENTRIES_MAX: usize = 256;

/// The servers of other programs of this user, in order of precedence.
pub fn discovered(places: &Places) -> Settings {
    let mut settings = Settings::default();
    for place in places.all() {
        let source = Source {
            program: place.program,
            is_discovered: true,
            file: Some(place.file.clone()),
        };
        let text = match file::read(&place.file) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(message) => {
                settings.findings.push(Finding {
                    source,
                    entry: None,
                    message,
                });
                continue;
            }
        };
        let stem = place
            .file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        read(&text, place.format, stem, &source, places, &mut settings);
    }
    settings
}

/// The servers that `MCP_SERVERS_CONFIG` names: the path of a file, or JSON.
pub fn configured(config: &str, places: &Places) -> Settings {
    let mut settings = Settings::default();
    let is_json = config.trim_start().starts_with('{');
    let file = (!is_json).then(|| PathBuf::from(config));
    let source = Source {
        program: "MCP_SERVERS_CONFIG",
        is_discovered: false,
        file: file.clone(),
    };
    let text = match file.map(|file| file::read(&file)) {
        None => Ok(config.to_owned()),
        Some(Ok(None)) => Err("there is no such file".to_owned()),
        Some(Ok(Some(text))) => Ok(text),
        Some(Err(message)) => Err(message),
    };
    match text {
        Ok(text) => read(
            &text,
            Format::McpServers,
            "server",
            &source,
            places,
            &mut settings,
        ),
        Err(message) => settings.findings.push(Finding {
            source,
            entry: None,
            message,
        }),
    }
    settings
}

/// Adds the entries of a text.
fn read(
    text: &str,
    format: Format,
    stem: &str,
    source: &Source,
    places: &Places,
    settings: &mut Settings,
) {
    let mut find = |entry: Option<&str>, message: String| {
        let entry = entry.map(|entry| on_one_line(entry, 64));
        settings.findings.push(Finding {
            source: source.clone(),
            entry,
            message,
        });
    };
    let Some(named) = format.entries(text, stem, &places.directory) else {
        find(
            None,
            format!("it is not the {} that it should be", format.language()),
        );
        return;
    };
    if named.len() > ENTRIES_MAX {
        find(
            None,
            format!(
                "only the first {ENTRIES_MAX} of {} servers are used",
                named.len()
            ),
        );
    }
    let mut entries = Vec::new();
    for formats::Named {
        name,
        value,
        directory,
    } in named.into_iter().take(ENTRIES_MAX)
    {
        match entry(&name, &value, directory, source) {
            Ok(None) => find(Some(&name), "it is disabled".to_owned()),
            Ok(Some(entry)) if places.is_own(&entry) => {
                find(
                    Some(&name),
                    "skipped, because it is Hotcell itself".to_owned(),
                );
            }
            Ok(Some(entry)) => entries.push(entry),
            Err(message) => find(Some(&name), message),
        }
    }
    settings.servers.extend(entries);
}

/// None if it is disabled.
fn entry(
    name: &str,
    value: &Value,
    directory: Option<PathBuf>,
    source: &Source,
) -> Result<Option<Entry>, String> {
    let name = ServerName::parse(name).map_err(|error| error.to_string())?;
    let fields = value.as_object().ok_or("it is not an object")?;
    let parsed = parse_entry(name, fields, source.clone()).map_err(|error| error.to_string())?;
    Ok(parsed.map(|mut entry| {
        if source.is_discovered {
            entry.principals = Principals::local();
        }
        if let crate::settings::Launch::Stdio(program) = &mut entry.launch {
            let directory = directory.filter(|directory| directory.is_dir());
            program.directory = program.directory.take().or(directory);
        }
        entry
    }))
}

/// Whether two paths lead to the same file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests;
