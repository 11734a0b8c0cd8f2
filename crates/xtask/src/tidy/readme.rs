//! Checks that the commands in README.md exist.

use super::Source;

const JOBS: &str = "crates/xtask/src/main.rs";
const CLI: &str = "crates/hotcell/src/cli/mod.rs";

/// Complaints about README.md.
pub(crate) fn complaints(sources: &[Source]) -> Vec<String> {
    let Some(readme) = sources.iter().find(|source| source.path == "README.md") else {
        return Vec::new();
    };
    let shown = commands(&readme.text);
    shown.filter_map(|line| missing(line, sources)).collect()
}

/// The lines of fenced shell blocks, without their prompt.
fn commands(readme: &str) -> impl Iterator<Item = &str> {
    let mut in_shell = false;
    readme.lines().filter_map(move |line| {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            in_shell = matches!(language.trim(), "sh" | "bash" | "console" | "shell");
            return None;
        }
        in_shell.then(|| line.trim().trim_start_matches("$ "))
    })
}

fn missing(line: &str, sources: &[Source]) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let exists = match words.as_slice() {
        ["cargo", "xtask", job, ..] => {
            let quoted = format!("Some(\"{job}\")");
            sources
                .iter()
                .any(|source| source.path == JOBS && source.text.contains(&quoted))
        }
        ["hotcell", verb, ..] if verb.starts_with(|letter: char| letter.is_ascii_lowercase()) => {
            let variant = camel_case(verb);
            let cli = sources.iter().filter(|source| source.path == CLI);
            cli.flat_map(|source| verbs(&source.text))
                .any(|known| known == variant)
        }
        [program, ..] if program.starts_with("./") => {
            sources.iter().any(|source| source.path == program[2..])
        }
        _ => true,
    };
    (!exists).then(|| format!("README.md shows `{line}`, which does not exist"))
}

/// The variants of the enum `Command`, from which clap derives the subcommands.
fn verbs(cli: &str) -> impl Iterator<Item = &str> {
    let body = cli
        .split_once("enum Command {")
        .map_or("", |(_, body)| body);
    let body = body.split_once("\n}").map_or("", |(body, _)| body);
    let variants = body.lines().filter_map(|line| line.strip_prefix("    "));
    variants
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()))
        .filter_map(|line| line.split(['(', ',', ' ']).next())
}

fn camel_case(verb: &str) -> String {
    let capitalised = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    verb.split('-').map(capitalised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Vec<String> {
        complaints(&[
            Source::of(
                "README.md",
                &format!("```sh\n{command}\n```\n`hotcell gone`\n"),
            ),
            Source::of(JOBS, "Some(\"tidy\") => tidy()"),
            Source::of(
                CLI,
                "struct Args;\nenum Command {\n    /// Fly\n    Serve(Args),\n    McpConfig,\n}\nenum Other {\n    Fly,\n}\n",
            ),
            Source::of("test", "#!/bin/bash"),
        ])
    }

    #[test]
    fn commands_that_exist_pass() {
        for good in [
            "cargo xtask tidy",
            "hotcell serve --port 8000",
            "$ hotcell mcp-config",
            "hotcell --help",
            "./test --fast",
            "curl localhost",
        ] {
            assert!(of(good).is_empty(), "{good}");
        }
    }

    #[test]
    fn commands_that_do_not_exist_are_named() {
        for bad in [
            "cargo xtask clean-up",
            "hotcell fly",
            "hotcell args",
            "hotcell serv",
            "./install.sh",
        ] {
            assert_eq!(of(bad).len(), 1, "{bad}");
        }
    }
}
