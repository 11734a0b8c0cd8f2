//! Checks PROMISES.md, docs/ESCAPES.md and docs/DEPENDENCIES.md: the tests and bounds that the first two name
//! exist, and the last names every crate that ours depend on.

use serde_json::Value;

use super::Source;
use crate::promises::PAGE as PROMISES;
use crate::promises::page::{Proof, promises};

/// Where the rows of benchmarks are named.
const BENCHES: &str = "crates/xtask/src/bench/";

const ESCAPES: &str = "docs/ESCAPES.md";
const DEPENDENCIES: &str = "docs/DEPENDENCIES.md";

/// Complaints about these pages.
pub(crate) fn complaints(metadata: &Value, sources: &[Source]) -> Vec<String> {
    let text = |path: &str| {
        sources
            .iter()
            .find(|source| source.path == path)
            .map(|source| source.text.as_str())
    };
    let mut complaints = Vec::new();
    let proofs = promises(text(PROMISES).unwrap_or_default());
    for proof in proofs.into_iter().flat_map(|promise| promise.proofs) {
        if !exists(&proof, sources) {
            complaints.push(format!("{PROMISES} names `{proof}`, which does not exist"));
        }
    }
    for test in tests(text(ESCAPES).unwrap_or_default()) {
        if !is_in_code(&format!("fn {test}("), "", sources) {
            complaints.push(format!(
                "{ESCAPES} names the test {test}, which does not exist"
            ));
        }
    }
    if let Some(page) = text(DEPENDENCIES) {
        let unnamed = dependencies(metadata)
            .into_iter()
            .filter(|name| !page.contains(&format!("`{name}`")));
        complaints
            .extend(unnamed.map(|name| format!("{DEPENDENCIES} does not say what {name} is for")));
    }
    complaints
}

fn exists(proof: &Proof, sources: &[Source]) -> bool {
    let (place, text) = match proof {
        Proof::Test { name, .. } => ("", format!("fn {name}(")),
        Proof::Bench { row, .. } => (BENCHES, row.clone()),
    };
    is_in_code(&text, place, sources)
}

fn is_in_code(text: &str, place: &str, sources: &[Source]) -> bool {
    let mut code = sources.iter().filter(|source| super::is_rust(&source.path));
    code.any(|source| source.path.starts_with(place) && source.text.contains(text))
}

/// The names after `::` in backquotes.
fn tests(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    quoted
        .filter_map(|word| word.split_once("::"))
        .map(|(_, test)| test)
        .filter(is_name)
}

/// The crates of others that ours name, sorted.
fn dependencies(metadata: &Value) -> Vec<&str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let ours = packages.filter(|package| package["source"].is_null());
    let asked = ours.flat_map(|package| package["dependencies"].as_array().into_iter().flatten());
    let strangers = asked.filter(|dependency| dependency["path"].is_null());
    let mut names: Vec<&str> = strangers
        .filter_map(|dependency| dependency["name"].as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(promises: &str, page: &str) -> Vec<String> {
        let metadata = json!({ "packages": [
            { "source": null, "dependencies": [{ "name": "tar" }, { "name": "hotcell-domain", "path": "/x" }] },
            { "source": "registry", "dependencies": [{ "name": "deep" }] },
        ] });
        complaints(
            &metadata,
            &[
                Source::of(PROMISES, promises),
                Source::of(ESCAPES, promises),
                Source::of(DEPENDENCIES, page),
                Source::of("crates/a/tests/it.rs", "fn it_holds() {}"),
                Source::of("crates/xtask/src/bench/a.rs", "\"spawn, warm\""),
            ],
        )
    }

    #[test]
    fn what_exists_and_is_explained_passes() {
        assert!(
            said(
                "| a | `it::it_holds`, `bench a: spawn, warm` |",
                "`tar`: archives"
            )
            .is_empty()
        );
    }

    #[test]
    fn a_missing_test_and_an_unexplained_crate_are_named() {
        let said = said(
            "| a | `it::it_holds_not` |\n| b | `bench a: spawn, hot` |",
            "tar",
        );
        assert_eq!(
            said,
            [
                "PROMISES.md names `it::it_holds_not`, which does not exist",
                "PROMISES.md names `bench a: spawn, hot`, which does not exist",
                "docs/ESCAPES.md names the test it_holds_not, which does not exist",
                "docs/DEPENDENCIES.md does not say what tar is for",
            ]
        );
    }
}
