//! `[secret.NAME]`: headers that rules of `[egress.NAME]` set on the host.

use std::str::FromStr;

use hotcell_egress::{InsideName, SecretHeader, SecretName, SecretSettings, SecretSource};
use serde_json::{Value, json};

use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

const KEYS: [&str; 5] = ["from", "header", "basic", "preset", "inside"];

pub(super) const SECTION: TableSection = TableSection {
    path: "secret",
    help: "Secrets that rules of egress profiles set as headers; their values are read on the host (`env:`, `file:`, `command:`) and never enter a container",
    example: "example = { from = \"env:EXAMPLE_TOKEN\", header = \"Authorization: Bearer {}\", inside = \"EXAMPLE_TOKEN\" }",
    schema,
    read,
};

fn schema() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "required": ["from"],
            "properties": { "from": text, "header": text, "basic": text, "preset": { "enum": ["git", "python", "npm", "cargo"] }, "inside": text },
        },
    })
}

fn read(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        match secret(&entry) {
            Ok((name, secret)) => drop(tables.egress.secrets.insert(name, secret)),
            Err(problem) => problems.push(problem),
        }
    }
}

fn secret(entry: &Entry<'_>) -> Result<(SecretName, SecretSettings), Problem> {
    let name = SecretName::parse(entry.name);
    let name = name.map_err(|error| entry.misnamed(error.to_string()))?;
    let (mut from, mut header, mut inside) = (None, None, None);
    for field in entry.table()?.entries() {
        let text = field.text()?;
        match field.name {
            "from" => from = Some(told(&field, SecretSource::from_str(text))?),
            "header" => header = Some(told(&field, SecretHeader::header(text))?),
            "basic" => header = Some(told(&field, SecretHeader::basic(text))?),
            "preset" => header = Some(told(&field, SecretHeader::preset(text))?),
            "inside" => inside = Some(told(&field, InsideName::parse(text))?),
            _ => return Err(field.unknown("key of a secret:", KEYS)),
        }
    }
    let (Some(from), Some(header)) = (from, header) else {
        return Err(entry.misnamed("a secret needs `from`, and `header`, `basic` or `preset`"));
    };
    let secret = SecretSettings {
        from,
        header,
        inside,
    };
    Ok((name, secret))
}

fn told<T>(entry: &Entry<'_>, parsed: Result<T, impl std::fmt::Display>) -> Result<T, Problem> {
    parsed.map_err(|error| entry.wrong(error.to_string()))
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
                let names = document.tables.egress.secrets.keys();
                names.map(ToString::to_string).collect()
            }
            Err(broken) => broken.to_string(),
        }
    }

    #[test]
    fn secrets_are_read_or_refused_with_their_place() {
        let good = "[secret.a]\nfrom = 'env:TOKEN'\nheader = 'Authorization: Bearer {}'\n";
        assert_eq!(said(good), "a");
        for (text, expected) in [
            ("[secret.a]\nfrom = 'env:TOKEN'\n", "1:9: a secret needs"),
            ("[secret.a]\nfrom = 'TOKEN'\n", "2:8: "),
            ("[secret.a]\nform = 'env:T'\n", "did you mean `from`?"),
            ("[secret.a]\ninside = 'A TOKEN'\n", "2:10: `inside` is"),
        ] {
            let said = said(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
