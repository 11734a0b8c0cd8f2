//! Checks which of our crates depend on which, and that each dependency is used.

use serde_json::Value;

use super::Source;

/// Each room and the rooms it may know. Tests may know more: only what ships is held to this.
const ROOMS: [(&str, &[&str]); 23] = [
    ("hotcell-domain", &[]),
    ("hotcell-agent-api", &[]),
    ("hotcell-runtime", &[]),
    ("hotcell-disk-usage", &[]),
    ("hotcell-codemode", &["hotcell-domain", "hotcell-upstream"]),
    (
        "hotcell-agent",
        &["hotcell-agent-api", "hotcell-disk-usage"],
    ),
    ("hotcell-agent-client", &["hotcell-agent-api"]),
    ("hotcell-agent-image", &[]),
    ("hotcell-auth", &["hotcell-domain"]),
    ("hotcell-image", &["hotcell-domain"]),
    ("hotcell-store", &["hotcell-domain"]),
    ("hotcell-ledger", &["hotcell-domain"]),
    ("hotcell-otlp", &["hotcell-domain"]),
    ("hotcell-upstream", &[]),
    ("hotcell-egress", &[]),
    (
        "hotcell-engine",
        &[
            "hotcell-agent-client",
            "hotcell-disk-usage",
            "hotcell-domain",
            "hotcell-image",
            "hotcell-runtime",
        ],
    ),
    (
        "hotcell-service",
        &[
            "hotcell-agent-client",
            "hotcell-domain",
            "hotcell-egress",
            "hotcell-engine",
            "hotcell-image",
            "hotcell-ledger",
            "hotcell-otlp",
            "hotcell-store",
        ],
    ),
    (
        "hotcell-mcp",
        &["hotcell-codemode", "hotcell-domain", "hotcell-service"],
    ),
    (
        "hotcell-http",
        &[
            "hotcell-auth",
            "hotcell-domain",
            "hotcell-mcp",
            "hotcell-service",
        ],
    ),
    (
        "hotcell",
        &[
            "hotcell-agent-client",
            "hotcell-agent-image",
            "hotcell-auth",
            "hotcell-codemode",
            "hotcell-domain",
            "hotcell-egress",
            "hotcell-engine",
            "hotcell-http",
            "hotcell-image",
            "hotcell-ledger",
            "hotcell-mcp",
            "hotcell-otlp",
            "hotcell-runtime",
            "hotcell-service",
            "hotcell-store",
            "hotcell-upstream",
        ],
    ),
    (
        // Nothing that ships may know it.
        "hotcell-testkit",
        &[
            "hotcell-agent-client",
            "hotcell-agent-image",
            "hotcell-domain",
            "hotcell-engine",
            "hotcell-service",
            "hotcell-store",
        ],
    ),
    (
        "hotcell-fuzz",
        &[
            "hotcell-agent",
            "hotcell-agent-client",
            "hotcell-egress",
            "hotcell-image",
        ],
    ),
    (
        "xtask",
        &[
            "hotcell-agent-client",
            "hotcell-agent-image",
            "hotcell-domain",
            "hotcell-egress",
            "hotcell-engine",
            "hotcell-ledger",
            "hotcell-runtime",
            "hotcell-store",
        ],
    ),
];

/// Complaints about the dependencies of our crates.
pub(crate) fn complaints(metadata: &Value, sources: &[Source]) -> Vec<String> {
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let ours: Vec<&Value> = packages
        .iter()
        .filter(|package| package["source"].is_null())
        .collect();
    let mut complaints = Vec::new();
    for package in &ours {
        complaints.extend(strangers(package));
        complaints.extend(unused(package, sources));
    }
    complaints
}

/// Crates that this package depends on but should not.
fn strangers(package: &Value) -> Vec<String> {
    let name = text(&package["name"]);
    let Some((_, known)) = ROOMS.iter().find(|(room, _)| *room == name) else {
        return vec![format!("{name}: a new room; say in xtask whom it may know")];
    };
    dependencies(package)
        .filter(|dependency| text(&dependency["kind"]) != "dev")
        .map(|dependency| text(&dependency["name"]))
        .filter(|other| ROOMS.iter().any(|(room, _)| room == other) && !known.contains(other))
        .map(|other| format!("{name} must not know {other}"))
        .collect()
}

/// Dependencies whose name occurs nowhere in the package's code.
fn unused(package: &Value, sources: &[Source]) -> Vec<String> {
    let manifest = text(&package["manifest_path"]);
    let directory = manifest.trim_end_matches("/Cargo.toml");
    let code: Vec<&Source> = sources
        .iter()
        .filter(|source| super::is_rust(&source.path) && below(&source.path, directory))
        .collect();
    dependencies(package)
        .map(|dependency| {
            dependency["rename"]
                .as_str()
                .unwrap_or(text(&dependency["name"]))
        })
        .filter(|name| {
            let identifier = name.replace('-', "_");
            !code
                .iter()
                .any(|source| has_word(&source.text, &identifier))
        })
        .map(|name| {
            format!(
                "{}: {name} is asked for and not used",
                text(&package["name"])
            )
        })
        .collect()
}

/// Whether `path`, from the repository's root, lies in the crate at `directory`.
fn below(path: &str, directory: &str) -> bool {
    let parts = if path.starts_with("crates/") { 2 } else { 1 };
    let parts: Vec<&str> = path.split('/').take(parts).collect();
    directory.ends_with(&format!("/{}", parts.join("/")))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .any(|found| found == word)
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(name: &str, dependencies: &Value, code: &str) -> Vec<String> {
        let metadata = json!({"packages": [{
            "name": name,
            "source": null,
            "manifest_path": "/repo/crates/x/Cargo.toml",
            "dependencies": dependencies,
        }]});
        complaints(&metadata, &[Source::of("crates/x/src/lib.rs", code)])
    }

    #[test]
    fn a_room_that_knows_a_stranger_is_named() {
        let asked = json!([{"name": "hotcell-runtime", "kind": null}]);
        let said = of("hotcell-agent", &asked, "use hotcell_runtime::X;");
        assert_eq!(said, ["hotcell-agent must not know hotcell-runtime"]);
    }

    #[test]
    fn tests_may_know_more_than_what_ships() {
        let asked = json!([{"name": "hotcell-agent-client", "kind": "dev"}]);
        assert!(of("hotcell-agent", &asked, "use hotcell_agent_client::X;").is_empty());
    }

    #[test]
    fn a_new_room_must_be_introduced() {
        assert_eq!(of("hotcell-utils", &json!([]), "").len(), 1);
    }

    #[test]
    fn a_dependency_nobody_uses_is_named() {
        let asked = json!([{"name": "fast-glob", "kind": null}]);
        assert_eq!(
            of("hotcell-agent", &asked, "use fast_globber::x;"),
            ["hotcell-agent: fast-glob is asked for and not used"]
        );
        assert!(of("hotcell-agent", &asked, "fast_glob::x()").is_empty());
    }

    #[test]
    fn a_crate_whose_name_begins_another_is_not_that_other() {
        assert!(below("crates/agent/src/main.rs", "/repo/crates/agent"));
        assert!(!below("crates/agent-api/src/lib.rs", "/repo/crates/agent"));
    }
}
