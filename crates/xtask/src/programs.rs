//! The test programs that start containers, and the binary they drive, as built by Cargo.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The crates, and the prefix of their tests' names: each crate has one program `it`.
const CRATES: [(&str, &str); 2] = [
    ("crates/hotcell/Cargo.toml", "hotcell"),
    ("crates/runtime/Cargo.toml", "runtime"),
];

/// What a tier outside Cargo needs to run the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Programs {
    /// Binaries that tests drive, `hotcell` among them: the name and the path that tests know.
    pub binaries: Vec<(String, PathBuf)>,
    /// Integration tests: the names of crate and target, and the program.
    pub tests: Vec<(String, PathBuf)>,
}

/// Builds them and prints one per line: `bin` or `test`, name, path.
pub(crate) fn print() -> Result<()> {
    let programs = build()?;
    let mut out = std::io::stdout().lock();
    for (kind, list) in [("bin", &programs.binaries), ("test", &programs.tests)] {
        for (name, path) in list {
            writeln!(out, "{kind} {name} {}", path.display())?;
        }
    }
    Ok(())
}

/// Builds them together with all others: for only a part of the workspace, Cargo would rebuild some
/// crates with other features.
pub(crate) fn build() -> Result<Programs> {
    let output = Command::new("cargo")
        .args(["test", "--no-run", "--workspace", "--all-targets"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(crate::workspace::root())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    Ok(pick(&String::from_utf8_lossy(&output.stdout)))
}

/// Extracts the programs from Cargo's messages.
fn pick(messages: &str) -> Programs {
    let mut programs = Programs::default();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else {
            continue;
        };
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let mut crates = CRATES.iter();
        let Some((_, owner)) = crates.find(|(ours, _)| manifest.ends_with(ours)) else {
            continue;
        };
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        match message["target"]["kind"][0].as_str() {
            Some("test") => programs.tests.push((format!("{owner}-{name}"), path)),
            Some("bin") if !is_test => programs.binaries.push((name.to_owned(), path)),
            _ => {}
        }
    }
    programs.tests.sort();
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_the_binary_are_picked_and_others_are_not() {
        let messages = r#"
            {"manifest_path":"/w/crates/hotcell/Cargo.toml","target":{"kind":["test"],"name":"hostile"},"profile":{"test":true},"executable":"/t/hostile-1"}
            {"manifest_path":"/w/crates/hotcell/Cargo.toml","target":{"kind":["bin"],"name":"hotcell"},"profile":{"test":true},"executable":"/t/hotcell-2"}
            {"manifest_path":"/w/crates/hotcell/Cargo.toml","target":{"kind":["bin"],"name":"hotcell"},"profile":{"test":false},"executable":"/t/hotcell"}
            {"manifest_path":"/w/crates/image/Cargo.toml","target":{"kind":["test"],"name":"pull"},"profile":{"test":true},"executable":"/t/pull-3"}
            {"manifest_path":"/w/crates/runtime/Cargo.toml","target":{"kind":["lib"],"name":"x"},"profile":{"test":false},"executable":null}
            not json"#;
        let expected = Programs {
            binaries: vec![("hotcell".into(), "/t/hotcell".into())],
            tests: vec![("hotcell-hostile".into(), "/t/hostile-1".into())],
        };
        assert_eq!(pick(messages), expected);
    }
}
