//! Sources, licences and versions of dependencies, as `deny.toml` allows them. `cargo deny` checks
//! the same, and advisories too; this check needs no tool and no network.

use serde_json::Value;

/// Cargo's name of crates.io.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The licences that `deny.toml` allows: for all crates, and for single ones.
#[derive(Debug, Default)]
struct Allowed<'text> {
    all: Vec<&'text str>,
    exceptions: Vec<(&'text str, &'text str)>,
}

impl<'text> Allowed<'text> {
    /// Parses the section `licenses` in our formatting: one licence or one exception per line.
    fn parse(deny: &'text str) -> Self {
        let section = deny.split("[licenses]").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        let mut allowed = Self::default();
        for line in section.lines().map(str::trim) {
            let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            match words[..] {
                [licence] if line.starts_with('"') => allowed.all.push(licence),
                [licence, name] if line.starts_with('{') => {
                    allowed.exceptions.push((name, licence));
                }
                _ => {}
            }
        }
        allowed
    }

    fn has(&self, name: &str, licence: &str) -> bool {
        self.all.contains(&licence) || self.exceptions.contains(&(name, licence))
    }
}

/// Complaints about the source, the licence or the version of a dependency.
pub(crate) fn complaints(metadata: &Value, deny: &str) -> Vec<String> {
    let allowed = Allowed::parse(deny);
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut complaints: Vec<String> = packages
        .iter()
        .filter_map(|package| of_one(package, &allowed))
        .collect();
    complaints.extend(packages.iter().flat_map(any_versions));
    complaints
}

fn of_one(package: &Value, allowed: &Allowed) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let source = package["source"].as_str()?;
    if source != CRATES_IO {
        return Some(format!("{name} comes from {source}"));
    }
    let licence = package["license"].as_str().unwrap_or("no licence");
    let is_one = |licence: &str| allowed.has(name, licence);
    (!is_allowed(licence, &is_one)).then(|| format!("{name} is under {licence}"))
}

/// Our dependencies that accept any version.
fn any_versions(package: &Value) -> Vec<String> {
    if !package["source"].is_null() {
        return Vec::new();
    }
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null())
        .map(|dependency| format!("{} asks for any {}", package["name"], dependency["name"]))
        .collect()
}

/// Evaluates an SPDX expression, with `/` as the old form of OR. `AND` binds tighter than `OR`.
fn is_allowed(expression: &str, is_one: &dyn Fn(&str) -> bool) -> bool {
    split(expression, &[" OR ", "/"]).iter().any(|choice| {
        let parts = split(choice, &[" AND "]);
        parts.iter().all(|part| {
            match part
                .strip_prefix('(')
                .and_then(|part| part.strip_suffix(')'))
            {
                Some(inner) => is_allowed(inner, is_one),
                None => is_one(part),
            }
        })
    })
}

/// Splits at a separator outside of brackets.
fn split<'text>(text: &'text str, separators: &[&str]) -> Vec<&'text str> {
    let mut pieces = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let separator = separators
            .iter()
            .find(|separator| text[at..].starts_with(**separator));
        if let (0, Some(separator)) = (depth, separator) {
            // Old expressions use `A / B`, whose separators must not overlap with an earlier match.
            if at >= from {
                pieces.push(text[from..at].trim());
                from = at + separator.len();
            }
        }
    }
    pieces.push(text[from..].trim());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A sample `deny.toml`.
    const DENY: &str = r#"
[advisories]
yanked = "deny"

[licenses]
allow = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "Unicode-3.0",
]
exceptions = [
    { allow = ["NCSA"], crate = "fuzzer" },
]

[bans]
skip = [
    "GPL-3.0",
]
"#;

    #[test]
    fn a_choice_needs_one_allowed_licence_and_a_sum_all() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert_eq!(under("x", good), [""; 0], "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-3.0) AND AGPL-3.0",
            "",
            "no licence",
        ] {
            assert_eq!(under("x", bad).len(), 1, "{bad}");
        }
    }

    /// The complaints about a crate with this licence.
    fn under(name: &str, licence: &str) -> Vec<String> {
        let package = json!({"name": name, "source": CRATES_IO, "license": licence});
        complaints(&json!({ "packages": [package] }), DENY)
    }

    #[test]
    fn an_exception_is_for_one_crate() {
        let licence = "(MIT OR Apache-2.0) AND NCSA";
        assert!(under("fuzzer", licence).is_empty());
        assert_eq!(
            under("other", licence),
            [format!("other is under {licence}")]
        );
    }

    #[test]
    fn a_dependency_of_any_version_is_named() {
        let asking = |dependency: Value| {
            let package = json!({"name": "ours", "source": null, "dependencies": [dependency]});
            complaints(&json!({ "packages": [package] }), DENY).len()
        };
        assert_eq!(asking(json!({"name": "x", "req": "*"})), 1);
        assert_eq!(asking(json!({"name": "x", "req": "^1.0"})), 0);
        assert_eq!(asking(json!({"name": "x", "req": "*", "path": "/w/x"})), 0);
    }

    #[test]
    fn another_source_than_crates_io_is_named() {
        let from = |source: Value| {
            let package = json!({"name": "x", "source": source, "license": "MIT"});
            complaints(&json!({ "packages": [package] }), DENY)
        };
        assert_eq!(from(json!("git+https://example.org/x")).len(), 1);
        assert!(from(json!(CRATES_IO)).is_empty());
        assert!(from(Value::Null).is_empty());
    }

    #[test]
    fn a_package_without_a_licence_is_named() {
        let metadata = json!({"packages": [{"name": "x", "source": CRATES_IO, "license": null}]});
        assert_eq!(complaints(&metadata, DENY), ["x is under no licence"]);
    }
}
