//! House rules as a check: cheap to run, and each one has saved a review comment. A rule returns
//! its complaints as sentences, so that one run reports all of them.

mod book;
mod licences;
mod map;
mod promises;
mod readme;
mod rooms;
mod text;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{codegen, workspace};

/// A text file: its path from the repository's root, and its content.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path, with `/` between its parts.
    pub path: String,
    /// The content.
    pub text: String,
}

/// Checks every rule; fails with all complaints.
pub(crate) fn check() -> Result<()> {
    let sources = sources(&workspace::root())?;
    let metadata = metadata()?;
    let mut complaints = text::complaints(&sources);
    complaints.extend(rooms::complaints(&metadata, &sources));
    let deny = sources.iter().find(|source| source.path == "deny.toml");
    let deny = deny.context("there is no deny.toml")?;
    complaints.extend(licences::complaints(&metadata, &deny.text));
    complaints.extend(map::complaints(&sources));
    complaints.extend(readme::complaints(&sources));
    complaints.extend(book::complaints(&sources));
    complaints.extend(promises::complaints(&metadata, &sources));
    if !codegen::is_fresh()? {
        complaints.push("the generated protocol is stale: run cargo xtask codegen".to_owned());
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{} untidy:\n{}", complaints.len(), complaints.join("\n"))
}

/// What `.gitignore` excludes. Git itself is not asked: a release archive has no repository.
const IGNORED: [&str; 5] = [
    ".git",
    "target",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// Binary files, even if they look like text.
const NOT_TEXT: &str = "fuzz/seeds";

/// The deepest directory; anything deeper is a loop.
const DEPTH_MAX: usize = 16;

/// All files below `root` that would be tracked, except binary ones.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    collect(root, "", DEPTH_MAX, &mut found)?;
    ensure!(!found.is_empty(), "{} has no files", root.display());
    found.sort_by(|one: &Source, other| one.path.cmp(&other.path));
    Ok(found)
}

fn collect(root: &Path, below: &str, depth: usize, found: &mut Vec<Source>) -> Result<()> {
    let depth = depth.checked_sub(1).context("directories never end")?;
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            bail!("{below} has a name that is not text");
        };
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type()?;
        if IGNORED.contains(&path.as_str()) || path == NOT_TEXT || path.ends_with(".pending-snap") {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, depth, found)?;
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            found.push(Source { path, text });
        }
    }
    Ok(())
}

fn is_rust(path: &str) -> bool {
    std::path::Path::new(path)
        .extension()
        .is_some_and(|end| end == "rs")
}

/// What Cargo says about this workspace and its dependencies.
pub(crate) fn metadata() -> Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        // As in deny.toml, dependencies that are only built elsewhere are not checked.
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(workspace::root())
        .output()
        .context("run cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
impl Source {
    fn of(path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self { path, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_without_a_repository_and_what_is_built_is_not() {
        let root = tempfile::tempdir().expect("a directory");
        for (path, content) in [
            ("test", &b"#!/bin/bash"[..]),
            ("crates/a/src/target/kept.rs", b"// a"),
            ("crates/a/picture.png", b"\xff\xfe"),
            ("target/debug/built.rs", b"// b"),
            ("fuzz/corpus/x", b"c"),
            (".git/config", b"d"),
            ("crates/a/src/x.pending-snap", b"e"),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
        let found = sources(root.path()).expect("files");
        let found: Vec<_> = found.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(found, ["crates/a/src/target/kept.rs", "test"]);
    }

    #[test]
    fn what_git_ignores_is_left_out_here_too() {
        let ignored = std::fs::read_to_string(workspace::root().join(".gitignore"));
        for line in ignored.expect("it is there").lines() {
            let known = IGNORED.contains(&line.trim_start_matches('/'));
            assert!(known || line == "*.pending-snap", "{line}");
        }
    }
}
