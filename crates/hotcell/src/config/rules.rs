//! `[rule.NAME]`: which calls scripts may make of other MCP servers.

use hotcell_codemode::{ArgumentTest, Decision, Rule};
use serde_json::{Value, json};

use super::kind::Kind;
use super::problem::Problem;
use super::table::{Entry, Table, TableSection, Tables};

/// The keys of a rule.
const KEYS: [&str; 7] = [
    "action", "server", "tool", "argument", "matches", "min", "max",
];

pub(super) const SECTION: TableSection = TableSection {
    path: "rule",
    help: "Calls of other MCP servers that scripts may make (`allow`), may not make (`deny`) or need consent for (`ask`); the most specific rule counts",
    example: "no-system-files = { server = \"files\", tool = \"write*\", argument = \"/path\", matches = \"/etc/*\", action = \"deny\" }",
    schema,
    read,
};

fn schema() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "number" });
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "required": ["action"],
            "properties": {
                "action": { "enum": ["allow", "ask", "deny"] },
                "server": text,
                "tool": text,
                "argument": text,
                "matches": text,
                "min": number,
                "max": number,
            },
        },
    })
}

fn read(table: &Table<'_>, tables: &mut Tables, problems: &mut Vec<Problem>) {
    for entry in table.entries() {
        match rule(&entry) {
            Ok(rule) => tables.rules.push(rule),
            Err(problem) => problems.push(problem),
        }
    }
}

fn rule(entry: &Entry<'_>) -> Result<Rule, Problem> {
    let table = entry.table()?;
    let (mut decision, mut server, mut tool) = (None, "*".to_owned(), "*".to_owned());
    let mut pointer = None;
    let (mut glob, mut min, mut max) = (None, None, None);
    for field in table.entries() {
        match field.name {
            "action" => {
                let parsed = Decision::parse(field.text()?);
                decision = Some(parsed.map_err(|error| field.wrong(format!("`action` {error}")))?);
            }
            "server" => field.text()?.clone_into(&mut server),
            "tool" => field.text()?.clone_into(&mut tool),
            "argument" => pointer = Some(argument(&field)?),
            "matches" => glob = Some(field.text()?.to_owned()),
            "min" => min = Some(number(&field)?),
            "max" => max = Some(number(&field)?),
            _ => return Err(field.unknown("key", KEYS)),
        }
    }
    let has_test = glob.is_some() || min.is_some() || max.is_some();
    if has_test && pointer.is_none() {
        return Err(
            entry.misnamed("`matches`, `min` and `max` test an argument: name it with `argument`")
        );
    }
    Ok(Rule {
        name: entry.name.to_owned(),
        server,
        tool,
        argument: pointer.map(|pointer| ArgumentTest {
            pointer,
            glob,
            min,
            max,
        }),
        decision: decision
            .ok_or_else(|| entry.misnamed("a rule needs an `action`: allow, ask or deny"))?,
    })
}

fn argument(entry: &Entry<'_>) -> Result<String, Problem> {
    let pointer = entry.text()?;
    if pointer.starts_with('/') {
        return Ok(pointer.to_owned());
    }
    Err(entry.wrong("`argument` is a JSON pointer, such as /path"))
}

fn number(entry: &Entry<'_>) -> Result<f64, Problem> {
    let text = entry.of(Kind::Number)?;
    text.parse().map_err(|_| entry.wrong("it must be a number"))
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
            Ok(document) => format!("{:?}", document.tables.rules),
            Err(broken) => broken.to_string(),
        }
    }

    #[test]
    fn rules_are_read_or_refused_with_their_place() {
        let read =
            said("[rule.a]\nserver = \"git*\"\nargument = \"/n\"\nmax = 5\naction = \"ask\"\n");
        assert!(
            read.contains("decision: Ask") && read.contains("max: Some(5.0)"),
            "{read}"
        );
        for (text, expected) in [
            ("[rule.a]\naction = \"maybe\"\n", "2:10"),
            ("[rule.a]\nserver = \"x\"\n", "needs an `action`"),
            ("[rule.a]\naction = \"deny\"\nmin = 1\n", "`argument`"),
            (
                "[rule.a]\naction = \"deny\"\ntol = \"x\"\n",
                "did you mean `tool`?",
            ),
            (
                "[rule.a]\naction = \"deny\"\nargument = \"path\"\n",
                "JSON pointer",
            ),
        ] {
            let said = said(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
