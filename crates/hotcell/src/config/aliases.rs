//! `[images.aliases]`: short names of images.

use hotcell_domain::ImageAliases;
use serde_json::{Value, json};

use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

pub(super) const SECTION: TableSection = TableSection {
    path: "images.aliases",
    help: "Short names of images, valid wherever an image is named",
    example: "py = \"python:3.12-slim\"",
    schema,
    read,
};

fn schema() -> Value {
    json!({
        "type": "object",
        "propertyNames": { "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64 },
        "additionalProperties": { "type": "string" },
    })
}

fn read(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    let entries: Vec<Entry<'_>> = table.entries().collect();
    let mut texts = Vec::new();
    for entry in &entries {
        match entry.text() {
            Ok(image) => texts.push((entry.name, image)),
            Err(problem) => problems.push(problem),
        }
    }
    match ImageAliases::parse(texts) {
        Ok(aliases) => tables.aliases = aliases,
        Err((name, error)) => {
            let wrong = entries.iter().find(|entry| entry.name == name);
            problems.extend(wrong.map(|entry| entry.misnamed(error.to_string())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use crate::cli::Cli;
    use crate::config::{Catalogue, Document};

    fn said(table: &str) -> String {
        let catalogue = Catalogue::of(&Cli::command());
        let text = format!("[images.aliases]\n{table}\n");
        match Document::read(Path::new("h.toml"), &text, &catalogue) {
            Ok(document) => {
                let aliases = document.tables.aliases;
                let shown = aliases
                    .iter()
                    .map(|(name, image)| format!("{name}={image}"));
                shown.collect::<Vec<_>>().join(" ")
            }
            Err(broken) => broken.to_string(),
        }
    }

    #[test]
    fn aliases_are_read_or_refused_with_their_place() {
        assert_eq!(
            said("py = 'python:3.12-slim'\nme = 'host'"),
            "me=host py=docker.io/library/python:3.12-slim"
        );
        assert_eq!(
            said("py = 'python'\nhost = 'node'"),
            "h.toml:3:1: an alias is 1 to 64 lower-case letters, digits and single dashes, and not `host`"
        );
        assert_eq!(
            said("py = 3"),
            "h.toml:2:6: `py` must be a string, not an integer"
        );
        assert_eq!(
            said("a = 'b'\nb = 'node'"),
            "h.toml:2:1: an alias must stand for an image, and `b` is an alias"
        );
        assert_eq!(
            said("a = 'x y'"),
            "h.toml:2:1: not an image reference; write for example `host` or `docker.io/library/python:3.12-slim`"
        );
    }
}
