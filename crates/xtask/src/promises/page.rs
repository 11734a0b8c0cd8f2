//! What PROMISES.md says: tables, whose first column is a promise and whose backquoted words are what shows it.
//!
//! `` `hostile::a_fork_bomb…` `` is a test: its program (`it` or `hostile`), or the crate whose own tests it is among, and its
//! function. `` `bench server: spawn, warm` `` is a bound: its area, and how the bound begins.

use std::fmt;

/// A promise of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) section: String,
    pub(crate) text: String,
    pub(crate) proofs: Vec<Proof>,
}

/// What shows a promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proof {
    Test { program: String, name: String },
    Bench { area: String, row: String },
}

impl fmt::Display for Proof {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test { program, name } => write!(out, "{program}::{name}"),
            Self::Bench { area, row } => write!(out, "bench {area}: {row}"),
        }
    }
}

/// All promises that name something.
pub(crate) fn promises(page: &str) -> Vec<Promise> {
    let (mut found, mut section) = (Vec::new(), "");
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim();
        }
        let Some(row) = line.strip_prefix("| ") else {
            continue;
        };
        let (text, shown_by) = row.split_once(" | ").unwrap_or((row, ""));
        let proofs: Vec<Proof> = quoted(shown_by).filter_map(proof).collect();
        if !proofs.is_empty() {
            let (section, text) = (section.to_owned(), text.trim().to_owned());
            found.push(Promise {
                section,
                text,
                proofs,
            });
        }
    }
    found
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn proof(word: &str) -> Option<Proof> {
    if let Some(bench) = word.strip_prefix("bench ") {
        let (area, row) = bench.split_once(": ")?;
        let (area, row) = (area.to_owned(), row.to_owned());
        return Some(Proof::Bench { area, row });
    }
    let (program, name) = word.split_once("::")?;
    let is_name = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    (is_name(name) && is_name(program)).then(|| Proof::Test {
        program: program.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_the_rows_that_name_a_test_or_a_bound() {
        let page = "# P\n`it::prose`\n## Limits\n| a container | shown by |\n|---|---|\n| ends a `tree` | `it::a_tree_ends`, `hotcell::b` |\n\
                    ## Speed\n| is quick | 2 ms | `bench server: spawn, warm` |\n| says | nothing |\n";
        let found = promises(page);
        let said: Vec<String> = found
            .iter()
            .map(|one| {
                format!(
                    "{}/{}: {}",
                    one.section,
                    one.text,
                    one.proofs
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("+")
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                "Limits/ends a `tree`: it::a_tree_ends+hotcell::b",
                "Speed/is quick: bench server: spawn, warm"
            ]
        );
    }
}
