//! `cargo xtask promises`: runs every test and every benchmark that PROMISES.md names, and says which promises were kept.

mod benches;
pub(crate) mod page;
mod tests_of;
mod verdict;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use self::page::{Promise, Proof};
use self::verdict::Verdicts;
use crate::workspace;

/// The page, from the repository's root.
pub(crate) const PAGE: &str = "PROMISES.md";

const USAGE: &str = "usage: promises [--list] [--tests | --benches] [--binary HOTCELL] [WORD…]";

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    is_list: bool,
    without_tests: bool,
    without_benches: bool,
    binary: Option<PathBuf>,
    /// Only promises that contain one of these, or whose section does.
    words: Vec<String>,
}

/// Runs what shows the promises, or lists it. Fails if one of them was not kept.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::parse(arguments)?;
    let text = std::fs::read_to_string(workspace::root().join(PAGE)).context("read PROMISES.md")?;
    let mut promises = page::promises(&text);
    promises.retain(|promise| wanted.includes(promise));
    ensure!(!promises.is_empty(), "no promise is called so");
    if wanted.is_list {
        return list(&promises);
    }
    let mut verdicts = Verdicts::default();
    if !wanted.without_tests {
        tests_of::run(&promises, &mut verdicts)?;
    }
    if !wanted.without_benches {
        benches::run(&promises, wanted.binary.as_deref(), &mut verdicts);
    }
    report(&promises, &verdicts)
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => wanted.is_list = true,
                "--tests" => wanted.without_benches = true,
                "--benches" => wanted.without_tests = true,
                "--binary" => wanted.binary = Some(words.next().context(USAGE)?.into()),
                word if word.starts_with('-') => bail!(USAGE),
                word => wanted.words.push(word.to_lowercase()),
            }
        }
        Ok(wanted)
    }

    fn includes(&self, promise: &Promise) -> bool {
        let text = format!("{} {}", promise.section, promise.text).to_lowercase();
        self.words.is_empty() || self.words.iter().any(|word| text.contains(word))
    }
}

/// Prints each promise and what shows it.
fn list(promises: &[Promise]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for promise in promises {
        writeln!(out, "{}: {}", promise.section, promise.text)?;
        for proof in &promise.proofs {
            writeln!(out, "    {proof}")?;
        }
    }
    Ok(())
}

/// Prints a line for each promise and its proofs that failed.
fn report(promises: &[Promise], verdicts: &Verdicts) -> Result<()> {
    let (mut out, mut counts) = (std::io::stdout().lock(), [0_usize; 3]);
    for promise in promises {
        let outcome = verdicts.of(promise);
        counts[outcome as usize] += 1;
        writeln!(
            out,
            "{} {}: {}",
            outcome.sign(),
            promise.section,
            promise.text
        )?;
        for proof in &promise.proofs {
            for line in verdicts.lines(proof) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    let [kept, not_run, broken] = counts;
    writeln!(
        out,
        "{kept} promises kept, {broken} broken, {not_run} not run"
    )?;
    ensure!(broken == 0, "{broken} promises are broken");
    ensure!(kept > 0, "nothing was run");
    Ok(())
}

impl Proof {
    /// The test, if it is one: its program and its function.
    fn as_test(&self) -> Option<(&str, &str)> {
        match self {
            Self::Test { program, name } => Some((program, name)),
            Self::Bench { .. } => None,
        }
    }

    /// The row of a benchmark, if it is one: its area and the beginning of its bound.
    fn as_bench(&self) -> Option<(&str, &str)> {
        match self {
            Self::Bench { area, row } => Some((area, row)),
            Self::Test { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::verdict::Outcome;
    use super::*;

    #[test]
    fn words_choose_promises_and_an_unknown_flag_is_refused() {
        let parse = |words: &[&str]| {
            Wanted::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let wanted = parse(&["--tests", "Memory"]).expect("it is right");
        let promise = |section: &str, text: &str| Promise {
            section: section.to_owned(),
            text: text.to_owned(),
            proofs: Vec::new(),
        };
        assert!(
            wanted.includes(&promise("Limits", "a memory bomb"))
                && wanted.includes(&promise("Memory", "x"))
        );
        assert!(!wanted.includes(&promise("Limits", "a fork bomb")));
        assert!(wanted.without_benches && !wanted.without_tests);
        assert!(parse(&["--lists"]).is_err() && parse(&["--binary"]).is_err());
    }

    #[test]
    fn a_promise_without_all_of_its_proofs_is_not_kept() {
        let test = |name: &str| Proof::Test {
            program: "it".to_owned(),
            name: name.to_owned(),
        };
        let promise = Promise {
            section: "S".to_owned(),
            text: "t".to_owned(),
            proofs: vec![test("one"), test("other")],
        };
        let mut verdicts = Verdicts::default();
        verdicts.say(&test("one"), Outcome::Kept, "one");
        assert_eq!(verdicts.of(&promise), Outcome::NotRun);
        assert!(report(std::slice::from_ref(&promise), &verdicts).is_err());
        verdicts.say(&test("other"), Outcome::Kept, "other");
        report(std::slice::from_ref(&promise), &verdicts).expect("both are kept");
        verdicts.say(&test("other"), Outcome::Broken, "again::other");
        assert!(report(&[promise], &verdicts).is_err());
    }
}
