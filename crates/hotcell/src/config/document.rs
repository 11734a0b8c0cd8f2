//! Parses a configuration file into values that the command line accepts.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::catalogue::{Catalogue, Setting};
use super::problem::{BrokenFile, Problem};
use super::table::{Entry, TABLES, Table, TableSection, Tables};

/// How many characters of an unknown name a message repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// The content of a file. Every value in it is valid.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// Values by flag, in the form that the flag accepts.
    pub(crate) values: BTreeMap<String, Vec<String>>,
    pub(crate) tables: Tables,
}

impl Document {
    /// Parses a file completely, or returns all problems.
    pub(crate) fn read(path: &Path, text: &str, catalogue: &Catalogue) -> Result<Self, BrokenFile> {
        let parsed = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let problem = Problem::new(at, error.message());
            BrokenFile::new(path, text, vec![problem])
        })?;
        let mut reader = Reader {
            catalogue,
            document: Self::default(),
            problems: Vec::new(),
        };
        for entry in Table::new(parsed.get_ref()).entries() {
            reader.section(&entry);
        }
        let unknown = reader.document.tables.check_profiles();
        // A profile with a problem of its own is not defined: that problem comes first.
        if reader.problems.is_empty() {
            reader.problems = unknown;
        }
        if reader.problems.is_empty() {
            return Ok(reader.document);
        }
        Err(BrokenFile::new(path, text, reader.problems))
    }
}

struct Reader<'a> {
    catalogue: &'a Catalogue,
    document: Document,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn section(&mut self, entry: &Entry<'_>) {
        if self.table(entry, entry.name) {
            return;
        }
        let sections = self.catalogue.sections();
        if !sections.contains(&entry.name) {
            let tables = TABLES.iter().map(|table| table.path);
            let problem = match self.catalogue.by_key(entry.name) {
                Some(setting) => entry.misnamed(format!(
                    "`{}` belongs into the section [{}]",
                    setting.key, setting.section
                )),
                None => entry.unknown("section", sections.into_iter().chain(tables)),
            };
            self.problems.push(problem);
            return;
        }
        match entry.table() {
            Ok(table) => {
                for key in table.entries() {
                    self.key(entry.name, &key);
                }
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    fn key(&mut self, section: &str, entry: &Entry<'_>) {
        if self.table(entry, &format!("{section}.{}", entry.name)) {
            return;
        }
        let Some(setting) = self.catalogue.find(section, entry.name) else {
            let problem = self.unknown_key(section, entry);
            return self.problems.push(problem);
        };
        match values(setting, entry) {
            Ok(texts) => {
                self.document.values.insert(setting.flag.clone(), texts);
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Parses an entry that is a table; returns whether it is one.
    fn table(&mut self, entry: &Entry<'_>, path: &str) -> bool {
        let Some(section) = TABLES.iter().find(|section| section.path == path) else {
            return false;
        };
        let TableSection { read, .. } = section;
        match entry.table() {
            Ok(table) => read(&table, &mut self.document.tables, &mut self.problems),
            Err(problem) => self.problems.push(problem),
        }
        true
    }

    fn unknown_key(&self, section: &str, entry: &Entry<'_>) -> Problem {
        if let Some(setting) = self.catalogue.by_key(entry.name) {
            return entry.misnamed(format!(
                "`{}` belongs into the section [{}], not [{section}]",
                setting.key, setting.section
            ));
        }
        let all = self.catalogue.settings.iter();
        entry.unknown(
            &format!("key of [{section}]:"),
            all.map(|setting| setting.key.as_str()),
        )
    }
}

/// The values of a key, in the form that its flag accepts.
fn values(setting: &Setting, entry: &Entry<'_>) -> Result<Vec<String>, Problem> {
    let key = &setting.key;
    if !setting.is_list {
        let text = value(setting, entry.value());
        return match text {
            Ok(text) => Ok(vec![text]),
            Err(reason) => Err(entry.wrong(format!("`{key}` {reason}"))),
        };
    }
    let Some(array) = entry.value().as_array() else {
        let found = super::kind::described(entry.value());
        let message = format!("`{key}` must be an array of strings, not {found}");
        return Err(entry.wrong(message));
    };
    let item = |item: &toml::Spanned<DeValue<'_>>| {
        value(setting, item.get_ref()).map_err(|reason| {
            Problem::new(item.span().start, format!("an item of `{key}` {reason}"))
        })
    };
    array.iter().map(item).collect()
}

fn value(setting: &Setting, value: &DeValue<'_>) -> Result<String, String> {
    let text = setting.kind.text(value)?;
    match setting.check(&text) {
        Ok(()) => Ok(text),
        // The value may be a secret: only the reason is shown.
        Err(reason) => Err(format!("is refused: {reason}")),
    }
}

/// Shortens a name from a file for use in a message.
pub(super) fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn read(text: &str) -> Result<Document, String> {
        let catalogue = Catalogue::of(&Cli::command());
        let read = Document::read(Path::new("h.toml"), text, &catalogue);
        read.map_err(|broken| broken.to_string())
    }

    fn refusal(text: &str) -> String {
        read(text).expect_err("it is refused")
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let document = read(
            "[server]\nport = 0x1F90\nhost = '::1'\nallowed_host = ['a', 'b']\n\
             [limits]\nmemory = '1g'\nmemory_max = 8589934592\ncpus = 1.5\npids = 64\n\
             [policy]\nallow_network = true\n[images]\nallowed_registries = []\n\
             [images.aliases]\npy = 'python:3.12-slim'\n",
        )
        .expect("it is valid");
        let value = |flag: &str| document.values[flag].join("|");
        assert_eq!(
            (value("port"), value("host")),
            ("8080".into(), "::1".into())
        );
        assert_eq!(value("allowed-host"), "a|b");
        assert_eq!(
            (value("memory"), value("cpus")),
            ("1g".into(), "1.5".into())
        );
        assert_eq!(value("memory-max"), "8589934592");
        assert_eq!(
            (value("pids"), value("allow-network")),
            ("64".into(), "true".into())
        );
        assert!(document.values["allowed-registries"].is_empty());
        assert_ne!(document.tables, Tables::default());
    }

    #[test]
    fn an_unknown_name_is_refused_with_its_place_and_the_nearest_known_one() {
        assert_eq!(
            refusal("\n[limits]\n  memry = '1g'\n"),
            "h.toml:3:3: unknown key of [limits]: `memry`; did you mean `memory`?"
        );
        assert_eq!(
            refusal("[limit]\nmemory = '1g'\n"),
            "h.toml:1:2: unknown section `limit`; did you mean `limits`?"
        );
        assert_eq!(
            refusal("port = 1\n"),
            "h.toml:1:1: `port` belongs into the section [server]"
        );
        assert_eq!(
            refusal("[server]\nmemory = '1g'\n"),
            "h.toml:2:1: `memory` belongs into the section [limits], not [server]"
        );
        assert_eq!(
            refusal("[zzz]\n\"q\\u001b[31m\" = 1\n"),
            "h.toml:1:2: unknown section `zzz`"
        );
    }

    #[test]
    fn a_wrong_type_or_value_is_refused_with_its_place() {
        for (text, said) in [
            (
                "[server]\nport = '80'",
                "2:8: `port` must be an integer, not a string",
            ),
            (
                "[server]\nport = 1.5",
                "2:8: `port` must be an integer, not a float",
            ),
            (
                "[server]\nport = 65536",
                "2:8: `port` is refused: 65536 is not in 0..=65535",
            ),
            (
                "[server]\nport = 99999999999999999999",
                "2:8: `port` must be an integer",
            ),
            (
                "[server]\nport = [1]",
                "2:8: `port` must be an integer, not an array",
            ),
            (
                "[server]\nallowed_host = 'a'",
                "2:16: `allowed_host` must be an array of strings",
            ),
            (
                "[server]\nallowed_host = ['a', 1]",
                "2:22: an item of `allowed_host` must be a str",
            ),
            ("[limits]\nmemory = true", "2:10: `memory` must be a size"),
            ("[limits]\nmemory = 'lots'", "2:10: `memory` is refused: "),
            (
                "[limits]\nmemory = 1979-05-27",
                "2:10: `memory` must be a size",
            ),
            ("[limits]\ncpus = nan", "2:8: `cpus` is refused: "),
            (
                "[policy]\nallow_network = 1",
                "2:17: `allow_network` must be true or false",
            ),
            (
                "[policy]\nallow_network = 'yes'",
                "2:17: `allow_network` must be true or false",
            ),
            (
                "limits = 3",
                "1:10: `limits` must be a table, not an integer",
            ),
            (
                "[[limits]]\nmemory = '1g'",
                "1:1: `limits` must be a table, not an array",
            ),
            (
                "[engine]\nengine = 'x'",
                "2:10: `engine` is refused: must be one of auto, ",
            ),
        ] {
            let refused = refusal(text);
            assert!(refused.starts_with(&format!("h.toml:{said}")), "{refused}");
        }
    }

    #[test]
    fn what_is_not_toml_is_refused_with_its_place() {
        for text in [
            "[limits]\nmemory = '1g'\nmemory = '2g'\n",
            "[limits]\n[limits]\n",
            "\0\0\0",
            "[limits]\nmemory = '1\0g'",
            "{\"limits\": {}}",
            "= = =",
            "[limits",
            "key = \"never closed",
        ] {
            let refused = refusal(text);
            assert!(refused.starts_with("h.toml:"), "{refused}");
        }
        let deep = format!("x = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(refusal(&deep).starts_with("h.toml:1:"));
        let deep = format!("[{}]", vec!["a"; 100_000].join("."));
        assert!(refusal(&deep).starts_with("h.toml:1:"));
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let refused = refusal("[limits]\nmemry = 1\ncpus = 'x'\n[nix]\n");
        assert_eq!(refused.lines().count(), 3, "{refused}");
    }

    #[test]
    fn a_name_is_repeated_without_what_a_terminal_would_obey() {
        let name = format!("\u{1b}[31m{}", "x".repeat(1000));
        let shown = shown(&name);
        assert!(shown.starts_with("\\u{1b}[31m") && shown.chars().count() < 100);
    }

    #[test]
    fn an_empty_file_says_nothing() {
        let document = read("# only a comment\n").expect("it is valid");
        assert!(document.values.is_empty());
    }
}
