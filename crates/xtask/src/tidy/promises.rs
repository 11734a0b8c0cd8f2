//! Checks PROMISES.md and docs/DEPENDENCIES.md: the tests that one names exist, and the other names
//! every crate that ours depend on.

use serde_json::Value;

use super::Source;

const PROMISES: &str = "PROMISES.md";
const DEPENDENCIES: &str = "docs/DEPENDENCIES.md";

/// Complaints about both pages.
pub(crate) fn complaints(metadata: &Value, sources: &[Source]) -> Vec<String> {
    let text = |path: &str| {
        sources
            .iter()
            .find(|source| source.path == path)
            .map(|source| source.text.as_str())
    };
    let mut complaints = Vec::new();
    for test in text(PROMISES).into_iter().flat_map(tests) {
        let function = format!("fn {test}(");
        let exists = sources
            .iter()
            .any(|source| super::is_rust(&source.path) && source.text.contains(&function));
        if !exists {
            complaints.push(format!(
                "{PROMISES} names the test {test}, which does not exist"
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
                Source::of(DEPENDENCIES, page),
                Source::of("crates/a/tests/it.rs", "fn it_holds() {}"),
            ],
        )
    }

    #[test]
    fn what_exists_and_is_explained_passes() {
        assert!(said("`it::it_holds`, `cargo xtask bench`", "`tar`: archives").is_empty());
    }

    #[test]
    fn a_missing_test_and_an_unexplained_crate_are_named() {
        let said = said("`it::it_holds_not`", "tar");
        assert_eq!(
            said,
            [
                "PROMISES.md names the test it_holds_not, which does not exist",
                "docs/DEPENDENCIES.md does not say what tar is for",
            ]
        );
    }
}
