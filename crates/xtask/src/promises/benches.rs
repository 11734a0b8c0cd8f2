//! Benchmarks, area by area: each is one run of `bench --json`, whose bounds are compared with the rows of the page.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::page::{Promise, Proof};
use super::verdict::{Outcome, Verdicts};
use crate::workspace;

pub(super) fn run(promises: &[Promise], binary: Option<&Path>, verdicts: &mut Verdicts) {
    let mut areas: BTreeMap<&str, Vec<&Proof>> = BTreeMap::new();
    for proof in promises.iter().flat_map(|promise| &promise.proofs) {
        if let Some((area, _)) = proof.as_bench() {
            areas.entry(area).or_default().push(proof);
        }
    }
    for (area, proofs) in areas {
        let measured = measured(area, binary);
        for proof in proofs {
            match &measured {
                Ok(measured) => judge(proof, measured, verdicts),
                Err(error) => {
                    let line = format!("bench {area}: {error:#}");
                    verdicts.say(proof, Outcome::Broken, &line);
                }
            }
        }
    }
}

/// What an area's run has measured. A program that is not optimized would measure itself, so another one is built then.
fn measured(area: &str, binary: Option<&Path>) -> Result<Value> {
    let file = std::env::temp_dir().join(format!("hotcell-promises-{}-{area}", std::process::id()));
    let mut bench = if cfg!(debug_assertions) {
        let mut cargo = Command::new("cargo");
        cargo
            .args([
                "run",
                "--release",
                "--quiet",
                "--package",
                "xtask",
                "--",
                "bench",
            ])
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .current_dir(workspace::root());
        cargo
    } else {
        let mut ours = Command::new(std::env::current_exe()?);
        ours.arg("bench");
        ours
    };
    bench.arg("--json").arg(&file);
    if let Some(binary) = binary {
        bench
            .arg("--binary")
            .arg(binary.canonicalize().context("--binary")?);
    }
    let status = bench.arg(area).status().context("run the benchmark")?;
    let text = std::fs::read(&file).with_context(|| format!("it ended early ({status})"))?;
    std::fs::remove_file(&file)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Compares a row of the page with the bounds of that beginning.
fn judge(proof: &Proof, measured: &Value, verdicts: &mut Verdicts) {
    let Some((_, row)) = proof.as_bench() else {
        return;
    };
    let bounds = measured["bounds"].as_array().into_iter().flatten();
    let mut is_known = false;
    for bound in bounds {
        let sentence = bound["sentence"].as_str().unwrap_or_default();
        if sentence.starts_with(row) {
            is_known = true;
            let kept = bound["kept"] == true;
            let outcome = if kept { Outcome::Kept } else { Outcome::Broken };
            verdicts.say(proof, outcome, sentence);
        }
    }
    if !is_known {
        verdicts.say(proof, Outcome::NotRun, &format!("{row}: not measured"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bound_that_was_missed_breaks_the_promise_and_an_absent_one_is_not_run() {
        let row = |row: &str| Proof::Bench {
            area: "server".to_owned(),
            row: row.to_owned(),
        };
        let promise = |proof: &Proof| Promise {
            section: String::new(),
            text: String::new(),
            proofs: vec![proof.clone()],
        };
        let measured = json!({"bounds": [
            {"sentence": "spawn, warm: p50 1.0 ms, at most 5 ms", "kept": true},
            {"sentence": "spawn, cold: p50 30.0 ms, at most 15 ms", "kept": false},
        ]});
        for (name, outcome) in [
            ("spawn, warm", Outcome::Kept),
            ("spawn, cold", Outcome::Broken),
            ("spawn, tepid", Outcome::NotRun),
        ] {
            let (proof, mut verdicts) = (row(name), Verdicts::default());
            judge(&proof, &measured, &mut verdicts);
            assert_eq!(verdicts.of(&promise(&proof)), outcome, "{name}");
        }
    }
}
