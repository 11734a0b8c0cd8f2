//! Generates the pages about commands: docs/reference/commands.md and docs/man. Only for tests, so
//! that the program that ships does not carry the generators.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// What writes the pages anew.
const REFRESH: &str = "HOTCELL_GOLDEN=write cargo test -p hotcell --bin hotcell reference";

const HEADING: &str = "# Commands

<!-- Generated from the help texts; a test keeps it fresh. Do not edit. -->

Every command takes `--config`, `--log-level` and `--log-format`; `hotcell COMMAND --help` says the same as this page. The
settings of `hotcell serve` are listed in [Configuration](../CONFIG.md).
";

/// Flags of every command, which the heading names.
const EVERYWHERE: [&str; 5] = ["help", "version", "config", "log-level", "log-format"];

fn root() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// The page of all commands.
fn page() -> String {
    let mut page = HEADING.to_owned();
    let root = root();
    for command in shown(&root) {
        describe(command, "hotcell", 2, &mut page);
    }
    page
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let shown = command.get_subcommands();
    shown.filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn describe(command: &Command, parent: &str, level: usize, page: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let usage = if usage.starts_with("hotcell") {
        usage.to_owned()
    } else {
        format!("hotcell {usage}")
    };
    let _ = write!(
        page,
        "\n{} {name}\n\n{}\n\n```text\n{usage}\n```\n",
        "#".repeat(level),
        escaped(&about)
    );
    let is_server = name == "hotcell serve";
    if !is_server {
        arguments(command, page);
    }
    if let Some(examples) = command.get_after_help() {
        let _ = write!(
            page,
            "\n```text\n{}\n```\n",
            examples.to_string().trim_end()
        );
    }
    for command in shown(command) {
        describe(command, &name, level + 1, page);
    }
}

fn arguments(command: &Command, page: &mut String) {
    let own = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let own = own.filter(|arg| !EVERYWHERE.contains(&arg.get_long().unwrap_or_default()));
    let rows: Vec<String> = own
        .map(|arg| {
            let value = arg
                .get_value_names()
                .and_then(<[_]>::first)
                .map(ToString::to_string);
            let value = value
                .filter(|_| arg.get_action().takes_values())
                .unwrap_or_default();
            let name = match arg.get_long() {
                Some(long) if value.is_empty() => format!("`--{long}`"),
                Some(long) => format!("`--{long} {value}`"),
                None => format!("`{value}`"),
            };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            format!("| {name} | {} |\n", escaped(&help).replace('\n', " "))
        })
        .collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| | |\n|---|---|\n{}", rows.concat());
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// The manual pages by file name. They bear no date, so that the same source gives the same page.
fn manual() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    manual_of(&root(), "hotcell", &mut pages);
    pages
}

fn manual_of(command: &Command, name: &str, pages: &mut BTreeMap<String, String>) {
    for below in shown(command) {
        manual_of(below, &format!("{name}-{}", below.get_name()), pages);
    }
    let mut text = Vec::new();
    let title = name.to_uppercase();
    let command = command.clone().name(name.to_owned());
    let manual = clap_mangen::Man::new(command)
        .title(title)
        .manual("Hotcell");
    manual.render(&mut text).expect("memory takes it");
    pages.insert(
        format!("{name}.1"),
        String::from_utf8(text).expect("a manual page is text"),
    );
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn compare(path: &Path, generated: &str) {
    if std::env::var_os("HOTCELL_GOLDEN").is_some_and(|wish| wish == "write") {
        std::fs::write(path, generated).expect("write the page");
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == generated,
        "{} is stale: run `{REFRESH}`",
        path.display()
    );
}

#[test]
fn the_page_of_commands_in_the_repository_is_fresh() {
    compare(&docs().join("reference/commands.md"), &page());
}

#[test]
fn the_manual_pages_in_the_repository_are_fresh_and_complete() {
    let pages = manual();
    for (name, text) in &pages {
        compare(&docs().join("man").join(name), text);
    }
    let stored = std::fs::read_dir(docs().join("man")).expect("there are pages");
    let stored = stored.map(|entry| entry.expect("an entry").file_name());
    for name in stored {
        let name = name.to_str().expect("a plain name");
        assert!(
            pages.contains_key(name),
            "docs/man/{name} describes no command: remove it"
        );
    }
}

#[test]
fn the_help_of_every_command_ends_with_examples() {
    let root = root();
    for command in shown(&root) {
        let after = command.get_after_help().map(ToString::to_string);
        let has_examples = after.is_some_and(|text| text.contains("Examples:\n  "));
        assert!(has_examples, "{}", command.get_name());
    }
}
