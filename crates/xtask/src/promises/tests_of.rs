//! Tests: everything is built by one call of Cargo, and each program that has a promised test is started once, with those
//! tests alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::page::{Promise, Proof};
use super::verdict::{Outcome, Verdicts};
use crate::workspace;

/// Only ends what hangs.
const SECONDS_MAX: &str = "3600";

/// Most of these tests wait for other programs.
const THREADS: &str = "4";

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    /// The name of its target, such as `it`; `None` for the tests inside a crate.
    target: Option<String>,
    path: PathBuf,
    /// Where Cargo would start it.
    directory: PathBuf,
}

pub(super) fn run(promises: &[Promise], verdicts: &mut Verdicts) -> Result<()> {
    let proofs: Vec<&Proof> = promises
        .iter()
        .flat_map(|promise| &promise.proofs)
        .filter(|proof| proof.as_test().is_some())
        .collect();
    if proofs.is_empty() {
        return Ok(());
    }
    let mut found = 0;
    for program in build()? {
        let here: Vec<&&Proof> = proofs
            .iter()
            .filter(|proof| program.may_have(proof))
            .collect();
        if here.is_empty() {
            continue;
        }
        let tests = wanted(&here, &program.tests()?);
        found += tests.len();
        if !tests.is_empty() {
            program.run(&tests, verdicts)?;
        }
    }
    ensure!(found > 0, "none of the tests is there");
    for proof in proofs {
        if verdicts.lines(proof).next().is_none() {
            verdicts.say(
                proof,
                Outcome::Broken,
                &format!("{proof}: there is no such test"),
            );
        }
    }
    Ok(())
}

/// The tests of a program that prove something, by their full names.
fn wanted(proofs: &[&&Proof], tests: &[String]) -> BTreeMap<String, Proof> {
    let proof_of = |test: &String| {
        let function = test.rsplit("::").next().unwrap_or(test);
        let proof = proofs
            .iter()
            .find(|proof| proof.as_test().is_some_and(|(_, name)| name == function))?;
        Some((test.clone(), (**proof).clone()))
    };
    tests.iter().filter_map(proof_of).collect()
}

impl Program {
    fn may_have(&self, proof: &Proof) -> bool {
        proof
            .as_test()
            .is_some_and(|(program, _)| match &self.target {
                Some(target) => program == target,
                None => {
                    program == self.package
                        || format!("hotcell_{program}").replace('_', "-") == self.package
                }
            })
    }

    /// The full names of its tests.
    fn tests(&self) -> Result<Vec<String>> {
        let output = Command::new(&self.path)
            .args(["--list", "--format", "terse"])
            .current_dir(&self.directory)
            .output()
            .with_context(|| format!("run {}", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs these tests and notes what came of each.
    fn run(&self, tests: &BTreeMap<String, Proof>, verdicts: &mut Verdicts) -> Result<()> {
        let skips = std::env::temp_dir().join(format!("hotcell-promises-{}", std::process::id()));
        std::fs::write(&skips, "")?;
        let output = Command::new("timeout")
            .args(["--kill-after=5", SECONDS_MAX])
            .arg(&self.path)
            .arg("--exact")
            .args(tests.keys())
            .current_dir(&self.directory)
            .env("HOTCELL_SKIPS", &skips)
            .env("RUST_TEST_THREADS", THREADS)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .output()
            .context("run the tests")?;
        let skipped = std::fs::read_to_string(&skips)?;
        std::fs::remove_file(&skips)?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            eprintln!("{text}");
        }
        for (test, proof) in tests {
            let outcome = outcome(test, &text, &skipped);
            let program = self.target.as_deref().unwrap_or("");
            verdicts.say(
                proof,
                outcome,
                &format!("{} {program} {test}", self.package),
            );
        }
        Ok(())
    }
}

/// What the harness says of a test. One that did not get to say anything has failed.
fn outcome(test: &str, output: &str, skipped: &str) -> Outcome {
    let passed = output
        .lines()
        .any(|line| line == format!("test {test} ... ok"));
    let was_left_out = skipped.lines().any(|line| {
        let mut fields = line.split('\t');
        let is_whole = fields.next().is_some_and(|word| word != "excluded-part");
        is_whole && fields.next() == Some(test)
    });
    match (passed, was_left_out) {
        (false, _) => Outcome::Broken,
        (true, true) => Outcome::NotRun,
        (true, false) => Outcome::Kept,
    }
}

/// Builds all programs of tests, as `./test` does.
fn build() -> Result<Vec<Program>> {
    let output = Command::new("cargo")
        .args(["test", "--no-run", "--workspace", "--all-targets"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace::root())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    Ok(pick(&String::from_utf8_lossy(&output.stdout)))
}

/// The programs in Cargo's messages.
fn pick(messages: &str) -> Vec<Program> {
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        if message["profile"]["test"] != true {
            return None;
        }
        let directory = Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .to_owned();
        let is_integration = message["target"]["kind"][0] == "test";
        let target = message["target"]["name"]
            .as_str()
            .filter(|_| is_integration);
        Some(Program {
            package: package(&directory)?,
            target: target.map(str::to_owned),
            path,
            directory,
        })
    };
    messages.lines().filter_map(program).collect()
}

/// The crates are called as their directories are; all but two begin with `hotcell-`.
fn package(directory: &Path) -> Option<String> {
    let name = directory.file_name()?.to_str()?;
    Some(match name {
        "hotcell" | "xtask" => name.to_owned(),
        name => format!("hotcell-{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(program: &str, name: &str) -> Proof {
        Proof::Test {
            program: program.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_test_is_looked_for_in_the_program_that_the_page_names() {
        let messages = r#"
            {"manifest_path":"/w/crates/hotcell/Cargo.toml","target":{"kind":["test"],"name":"hostile"},"profile":{"test":true},"executable":"/t/hostile-1"}
            {"manifest_path":"/w/crates/egress/Cargo.toml","target":{"kind":["lib"],"name":"hotcell_egress"},"profile":{"test":true},"executable":"/t/egress-2"}
            {"manifest_path":"/w/crates/hotcell/Cargo.toml","target":{"kind":["bin"],"name":"hotcell"},"profile":{"test":false},"executable":"/t/hotcell"}
            not json"#;
        let programs = pick(messages);
        let names: Vec<_> = programs
            .iter()
            .map(|one| (one.package.as_str(), one.target.as_deref()))
            .collect();
        assert_eq!(
            names,
            [("hotcell", Some("hostile")), ("hotcell-egress", None)]
        );
        assert!(
            programs[0].may_have(&proof("hostile", "x"))
                && !programs[0].may_have(&proof("hotcell", "x"))
        );
        assert!(
            programs[1].may_have(&proof("egress", "x")) && !programs[1].may_have(&proof("it", "x"))
        );
    }

    #[test]
    fn a_name_stands_for_the_tests_that_end_with_it_and_for_no_others() {
        let wanted_proof = proof("it", "a_tree_ends");
        let proofs = [&wanted_proof];
        let proofs: Vec<&&Proof> = proofs.iter().collect();
        let tests = [
            "one::a_tree_ends",
            "two::a_tree_ends",
            "one::a_tree_ends_early",
        ]
        .map(str::to_owned);
        let found = wanted(&proofs, &tests);
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            ["one::a_tree_ends", "two::a_tree_ends"]
        );
    }

    #[test]
    fn a_test_that_was_left_out_or_never_ended_keeps_nothing() {
        let said = "test a::b ... ok\ntest a::c ... FAILED\n";
        assert_eq!(outcome("a::b", said, ""), Outcome::Kept);
        assert_eq!(
            outcome("a::b", said, "skipped\ta::b\tno engine\n"),
            Outcome::NotRun
        );
        assert_eq!(
            outcome("a::b", said, "excluded-part\ta::b\tno engine\n"),
            Outcome::Kept
        );
        assert_eq!(outcome("a::c", said, ""), Outcome::Broken);
        assert_eq!(outcome("a::d", said, ""), Outcome::Broken);
    }
}
