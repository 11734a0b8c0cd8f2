//! Sets, removes and puts back one entry of a client's file, in whatever language it is.
//!
//! What is written was checked: apart from the entry, the file says what it said before.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::clients::{Client, Language};
use super::node::Node;
use super::yaml::Kind;
use super::{jsonc, toml_table, yaml};

/// The text of the client's file with the entry in it. `text` is empty if there is no file.
pub(super) fn with_entry(client: &Client, text: &str, name: &str, entry: &Node) -> Result<String> {
    let after = set(client, text, name, &raw(client, text, name, entry)?)?;
    check(client, text, &after, name, entry)?;
    Ok(after)
}

/// The text as it was before the entry was written.
///
/// If nothing else has changed since `backup`, it is the backup, byte for byte. Otherwise only the
/// entry is put back or removed, and what others changed stays. `None`: there was no file.
pub(super) fn without_entry(
    client: &Client,
    text: &str,
    backup: Option<&str>,
    name: &str,
) -> Result<Option<String>> {
    let Some(now) = get(client, text, name)? else {
        return Ok(Some(text.to_owned()));
    };
    let is_all_there_is =
        |before: &str| set(client, before, name, &now).is_ok_and(|again| again == text);
    match backup {
        None if is_all_there_is("") => return Ok(None),
        Some(backup) if is_all_there_is(backup) => return Ok(Some(backup.to_owned())),
        None | Some(_) => {}
    }
    let before = backup.map_or(Ok(None), |backup| get(client, backup, name))?;
    let after = match before {
        Some(before) => set(client, text, name, &before)?,
        None => remove(client, text, name)?,
    };
    Ok(Some(after))
}

/// Whether the file has an entry of this name.
pub(super) fn has_entry(client: &Client, text: &str, name: &str) -> Result<bool> {
    Ok(get(client, text, name)?.is_some())
}

fn get(client: &Client, text: &str, name: &str) -> Result<Option<String>> {
    match client.language {
        Language::Json { key } => jsonc::get(text, key, name),
        Language::Toml { key } => toml_table::get(text, key, name),
        Language::YamlTable { key } => yaml::get(text, key, Kind::Table, name),
        Language::YamlList { key, .. } => yaml::get(text, key, Kind::List, name),
    }
}

fn raw(client: &Client, text: &str, name: &str, entry: &Node) -> Result<String> {
    match client.language {
        Language::Json { key } => jsonc::raw(text, key, entry),
        Language::Toml { key } => Ok(toml_table::raw(key, name, entry)),
        Language::YamlTable { key } => yaml::raw(text, key, Kind::Table, name, entry),
        Language::YamlList { key, .. } => yaml::raw(text, key, Kind::List, name, entry),
    }
}

fn set(client: &Client, text: &str, name: &str, raw: &str) -> Result<String> {
    match client.language {
        Language::Json { key } => jsonc::set(text, key, name, raw),
        Language::Toml { key } => toml_table::set(text, key, name, raw),
        Language::YamlTable { key } => yaml::set(text, key, Kind::Table, name, raw),
        Language::YamlList { key, heading } => {
            let text = if text.trim().is_empty() {
                heading
            } else {
                text
            };
            yaml::set(text, key, Kind::List, name, raw)
        }
    }
}

fn remove(client: &Client, text: &str, name: &str) -> Result<String> {
    match client.language {
        Language::Json { key } => jsonc::remove(text, key, name),
        Language::Toml { key } => toml_table::remove(text, key, name),
        Language::YamlTable { key } => yaml::remove(text, key, Kind::Table, name),
        Language::YamlList { key, .. } => yaml::remove(text, key, Kind::List, name),
    }
}

/// Reads both texts and compares them. YAML has no reader here, and its editor moves whole lines only.
fn check(client: &Client, before: &str, after: &str, name: &str, entry: &Node) -> Result<()> {
    let (parse, key): (fn(&str) -> Result<Value>, &str) = match client.language {
        Language::Json { key } => (jsonc::parse, key),
        Language::Toml { key } => (toml_table::parse, key),
        Language::YamlTable { .. } | Language::YamlList { .. } => return Ok(()),
    };
    let mut wanted = parse(before)?;
    let servers = wanted
        .as_object_mut()
        .context("the file is not an object")?;
    let servers = servers
        .entry(key)
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    let servers = servers
        .as_object_mut()
        .with_context(|| format!("`{key}` in the file is not a table"))?;
    servers.insert(name.to_owned(), entry.to_json());
    let is_wanted = parse(after).is_ok_and(|after| after == wanted);
    ensure!(is_wanted, "the file is written in a way that is not edited");
    Ok(())
}
