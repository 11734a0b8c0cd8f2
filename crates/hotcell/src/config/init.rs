//! `hotcell config init`: a file with every setting as a comment, to be edited.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::catalogue::{Catalogue, Setting};
use super::kind::Kind;
use super::table::TABLES;
use super::toml_text::{literal, quoted};
use crate::cli::InitArgs;

/// Only for its owner: a token may be written into it.
const MODE: u32 = 0o600;

/// Standard output instead of a file.
const STDOUT: &str = "-";

/// Writes the file; returns what to print.
pub(super) fn write(arguments: &InitArgs, catalogue: &Catalogue) -> Result<String> {
    let (text, path) = (text(catalogue), arguments.path.as_path());
    if path == Path::new(STDOUT) {
        return Ok(text);
    }
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE);
    if arguments.force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let shown = path.display();
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} exists; --force replaces it")
        }
        opened => opened.with_context(|| format!("create {shown}"))?,
    };
    let written = file.write_all(text.as_bytes());
    written.with_context(|| format!("write {shown}"))?;
    Ok(format!(
        "wrote {shown}; `hotcell config check {shown}` checks it\n"
    ))
}

/// A file without effect: every setting with its help and its default, as comments.
pub(super) fn text(catalogue: &Catalogue) -> String {
    let mut lines = vec![
        "#:schema ./hotcell.schema.json".to_owned(),
        "# The configuration of Hotcell. A line that begins with `#` is a comment: what it"
            .to_owned(),
        "# shows is the default. Flags and HOTCELL_* variables override what is set here."
            .to_owned(),
        "# `hotcell config schema > hotcell.schema.json` makes the schema for editors.".to_owned(),
    ];
    for section in catalogue.sections() {
        lines.push(format!("\n[{section}]"));
        for setting in catalogue.of_section(section) {
            lines.push(format!("# {}{}", setting.help, in_words(setting)));
            lines.push(format!(
                "#{} = {}",
                setting.key,
                default_or_example(setting)
            ));
        }
    }
    for table in TABLES {
        lines.push(format!("\n# {}", table.help));
        lines.push(format!("[{}]", table.path));
        lines.extend(table.example.lines().map(|line| format!("#{line}")));
    }
    lines.join("\n") + "\n"
}

/// Describes a default that cannot be written as a value.
fn in_words(setting: &Setting) -> String {
    match (&setting.default, default_values(setting)) {
        (Some(words), None) => format!(" (default: {words})"),
        _ => String::new(),
    }
}

fn default_or_example(setting: &Setting) -> String {
    match default_values(setting) {
        Some(values) => literal(setting, &values),
        None if setting.is_list => "[]".to_owned(),
        None if setting.kind == Kind::Boolean => "false".to_owned(),
        None => quoted(&setting.value_name),
    }
}

/// The default, if it is a value that the setting accepts.
fn default_values(setting: &Setting) -> Option<Vec<String>> {
    let default = setting.default.as_ref()?;
    let values: Vec<String> = if setting.is_list {
        default.split(',').map(str::to_owned).collect()
    } else {
        vec![default.clone()]
    };
    let is_valid = |value: &String| setting.check(value).is_ok() && !value.contains(' ');
    values.iter().all(is_valid).then_some(values)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;
    use crate::config::Document;

    fn read(text: &str) -> Document {
        let catalogue = Catalogue::of(&Cli::command());
        let read = Document::read(Path::new("h.toml"), text, &catalogue);
        read.unwrap_or_else(|broken| panic!("{broken}"))
    }

    #[test]
    fn the_file_loads_and_says_nothing() {
        let catalogue = Catalogue::of(&Cli::command());
        assert!(read(&text(&catalogue)).values.is_empty());
    }

    #[test]
    fn every_default_that_it_shows_is_a_value_that_loads() {
        let catalogue = Catalogue::of(&Cli::command());
        let text = text(&catalogue);
        let mut count = 0;
        for setting in &catalogue.settings {
            let commented = format!("\n#{} = ", setting.key);
            assert!(text.contains(&commented), "{}", setting.key);
            if default_values(setting).is_some() {
                let document = read(&text.replace(&commented, &commented.replace('#', "")));
                assert!(document.values.contains_key(&setting.flag));
                count += 1;
            }
        }
        assert!(count > 20, "only {count} defaults");
    }
}
