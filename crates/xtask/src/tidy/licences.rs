//! Where dependencies come from and under which licences. `deny.toml` says the same to those who
//! have cargo-deny; this needs no tool and no network.

use serde_json::Value;

/// Licences that ask for no more than a notice.
const ALLOWED: [&str; 9] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// How Cargo names crates.io.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What is wrong with the origin or the licence of what we build on.
pub fn complaints(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    packages.iter().filter_map(of_one).collect()
}

fn of_one(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let source = package["source"].as_str()?;
    if source != CRATES_IO {
        return Some(format!("{name} comes from {source}"));
    }
    let licence = package["license"].as_str().unwrap_or("no licence");
    (!is_allowed(licence)).then(|| format!("{name} is under {licence}"))
}

/// Reads an SPDX expression, with `/` as the old way to say OR. `AND` binds closer than `OR`.
fn is_allowed(expression: &str) -> bool {
    split(expression, &[" OR ", "/"]).iter().any(|choice| {
        let parts = split(choice, &[" AND "]);
        parts.iter().all(|part| {
            match part
                .strip_prefix('(')
                .and_then(|part| part.strip_suffix(')'))
            {
                Some(inner) => is_allowed(inner),
                None => ALLOWED.contains(part),
            }
        })
    })
}

/// Splits at a separator that stands outside of brackets.
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
            // Old expressions write `A / B`, whose separators must not overlap with one found before.
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
            assert!(is_allowed(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-3.0) AND AGPL-3.0",
            "",
            "no licence",
        ] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn another_source_than_crates_io_is_named() {
        let from = |source: Value| {
            complaints(&json!({"packages": [{"name": "x", "source": source, "license": "MIT"}]}))
        };
        assert_eq!(from(json!("git+https://example.org/x")).len(), 1);
        assert!(from(json!(CRATES_IO)).is_empty());
        assert!(from(Value::Null).is_empty());
    }

    #[test]
    fn a_package_without_a_licence_is_named() {
        let metadata = json!({"packages": [{"name": "x", "source": CRATES_IO, "license": null}]});
        assert_eq!(complaints(&metadata), ["x is under no licence"]);
    }
}
