//! `[upstream.NAME]`: the user's other MCP servers.

use hotcell_upstream::sources::{KEYS, entry_schema, json_of_toml, parse_entry};
use hotcell_upstream::{ServerName, Source};
use serde_json::{Value, json};

use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

pub(super) const SECTION: TableSection = TableSection {
    path: "upstream",
    help: "MCP servers that scripts may call; `${ENV:NAME}` in a value is a variable of Hotcell's own environment",
    example: "files = { command = \"npx\", args = [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/srv\"], principals = [\"local\"] }",
    schema,
    read,
};

fn schema() -> Value {
    json!({ "type": "object", "additionalProperties": entry_schema() })
}

fn read(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        if let Err(problem) = add(&entry, tables) {
            problems.push(problem);
        }
    }
}

fn add(entry: &Entry<'_>, tables: &mut Tables) -> Result<(), Problem> {
    let name = ServerName::parse(entry.name).map_err(|error| entry.misnamed(error.to_string()))?;
    let fields = entry.table()?;
    let Value::Object(values) = json_of_toml(entry.value()) else {
        return Err(entry.wrong("must be a table"));
    };
    let source = Source {
        program: "hotcell.toml",
        is_discovered: false,
        file: None,
    };
    match parse_entry(name, &values, source) {
        Ok(parsed) => tables.upstreams.extend(parsed),
        Err(error) => {
            let field = fields
                .entries()
                .find(|field| Some(field.name) == error.key.as_deref());
            return Err(match field {
                Some(field) if !KEYS.contains(&field.name) => {
                    field.unknown("key of an MCP server:", KEYS)
                }
                Some(field) => field.wrong(error.to_string()),
                None => entry.misnamed(error.to_string()),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use crate::cli::Cli;
    use crate::config::{Catalogue, Document};

    fn said(text: &str) -> String {
        let catalogue = Catalogue::of(&Cli::command());
        match Document::read(Path::new("h.toml"), text, &catalogue) {
            Ok(document) => {
                let servers = document.tables.upstreams.iter();
                let shown =
                    servers.map(|entry| format!("{}={}", entry.name, entry.launch.kind().as_str()));
                shown.collect::<Vec<_>>().join(" ")
            }
            Err(broken) => broken.to_string(),
        }
    }

    #[test]
    fn servers_are_read_or_refused_with_their_place() {
        let text = "[upstream.files]\ncommand = 'npx'\nargs = ['-y', 'x']\nenv = { A = '${ENV:B}' }\n[upstream.\"my web\"]\nurl = 'https://x'\nheaders = { X = 'y' }\n[upstream.off]\ncommand = 'x'\nenabled = false\n";
        assert_eq!(said(text), "files=stdio my web=http");
        assert_eq!(
            said("[upstream.a]\ncomand = 'x'\n"),
            "h.toml:2:1: unknown key of an MCP server: `comand`; did you mean `command`?"
        );
        assert_eq!(
            said("[upstream.a]\ncommand = 'x'\nargs = 'y'\n"),
            "h.toml:3:8: `args` must be a list of strings"
        );
        assert_eq!(
            said("[upstream.a]\nenv = {}\n"),
            "h.toml:1:11: it has neither a `command` nor a `url`"
        );
        assert_eq!(
            said("[upstream]\na = 3\n"),
            "h.toml:2:5: `a` must be a table, not an integer"
        );
    }
}
