//! `[quota.NAME]`: other quotas for one principal, like `--quota NAME:…`.

use hotcell_domain::{Name, Principal, QuotaKind, QuotaOverride};
use serde_json::{Map, Value, json};

use super::kind::Kind;
use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

pub(super) const SECTION: TableSection = TableSection {
    path: "quota",
    help: "Other quotas for one principal; `--quota` for the same principal replaces them",
    example: "\"token:ann\" = { containers = 20, execs = 64, spawns_per_minute = 60, disk_bytes = \"100g\", output_bytes = \"1g\" }",
    schema,
    read,
};

fn schema() -> Value {
    let quotas = QuotaKind::ALL.map(|quota| {
        let value = match kind(quota) {
            Kind::Size => json!({ "type": ["string", "integer"] }),
            Kind::Boolean | Kind::Integer | Kind::Number | Kind::Text => {
                json!({ "type": "integer", "minimum": 1 })
            }
        };
        (quota.as_str().to_owned(), value)
    });
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "properties": quotas.into_iter().collect::<Map<_, _>>(),
        },
    })
}

/// The kind of a quota's value: names of sizes end in `bytes`.
fn kind(quota: QuotaKind) -> Kind {
    if quota.as_str().ends_with("bytes") {
        Kind::Size
    } else {
        Kind::Integer
    }
}

fn read(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        match principal(&entry) {
            Ok((principal, quotas)) => drop(tables.quotas.insert(principal, quotas)),
            Err(found) => problems.extend(found),
        }
    }
}

fn principal(entry: &Entry<'_>) -> Result<(Principal, QuotaOverride), Vec<Problem>> {
    let name = Name::parse(entry.name);
    let name = name.map_err(|error| vec![entry.misnamed(format!("the principal {error}"))])?;
    let quotas = entry.table().map_err(|problem| vec![problem])?;
    let (mut chosen, mut problems) = (QuotaOverride::default(), Vec::new());
    for quota in quotas.entries() {
        problems.extend(set(&quota, &mut chosen).err());
    }
    if problems.is_empty() {
        return Ok((Principal::new(name), chosen));
    }
    Err(problems)
}

fn set(entry: &Entry<'_>, chosen: &mut QuotaOverride) -> Result<(), Problem> {
    let known = QuotaKind::ALL.map(QuotaKind::as_str);
    let Ok(quota) = QuotaKind::parse(entry.name) else {
        return Err(entry.unknown("quota", known));
    };
    let value = entry.of(kind(quota))?;
    let set = chosen.set(quota, &value);
    // The TOML parser rejects duplicate keys.
    set.map(drop)
        .map_err(|error| entry.wrong(error.to_string()))
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
                let shown = document.tables.quotas.iter().map(|(principal, quotas)| {
                    let quotas = quotas
                        .chosen()
                        .map(|(quota, value)| format!(" {quota}={value}"));
                    format!("{principal}:{}", quotas.collect::<String>())
                });
                shown.collect::<Vec<_>>().join("; ")
            }
            Err(broken) => broken.to_string(),
        }
    }

    #[test]
    fn quotas_of_a_principal_are_read_or_refused_with_their_place() {
        assert_eq!(
            said(
                "[quota.\"token:ann\"]\nexecs = 8\noutput_bytes = '1g'\n[quota.bob]\ncontainers = 2\n"
            ),
            "bob: containers=2; token:ann: execs=8 output_bytes=1073741824"
        );
        assert_eq!(
            said("[quota]\nann = { spawns_per_minute = 3 }\n"),
            "ann: spawns_per_minute=3"
        );
        assert_eq!(
            said("[quota.ann]\nexec = 8\n"),
            "h.toml:2:1: unknown quota `exec`; did you mean `execs`?"
        );
        assert_eq!(
            said("[quota.ann]\nexecs = 0\n"),
            "h.toml:2:9: quota execs: `0` is not a whole number above 0"
        );
        assert_eq!(
            said("[quota.ann]\nexecs = true\n"),
            "h.toml:2:9: `execs` must be an integer, not a boolean"
        );
        assert_eq!(
            said("[quota]\nann = 3\n"),
            "h.toml:2:7: `ann` must be a table, not an integer"
        );
    }
}
