//! House rules as a check: cheap to run, and each one has saved a review comment. A rule gives
//! back its complaints in sentences, so that one run tells all of them.

mod licences;
mod readme;
mod rooms;
mod text;

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{codegen, workspace};

/// A tracked text file: its path from the repository's root and what is in it.
#[derive(Debug)]
pub struct Source {
    /// The path, with `/` between its parts.
    pub path: String,
    /// The content.
    pub text: String,
}

/// Checks every rule; fails with all complaints.
pub fn check() -> Result<()> {
    let sources = sources()?;
    let metadata = metadata()?;
    let mut complaints = text::complaints(&sources);
    complaints.extend(rooms::complaints(&metadata, &sources));
    complaints.extend(licences::complaints(&metadata));
    complaints.extend(readme::complaints(&sources));
    if !codegen::is_fresh()? {
        complaints.push("the generated protocol is stale: run cargo xtask codegen".to_owned());
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{} untidy:\n{}", complaints.len(), complaints.join("\n"))
}

/// All files that are tracked or would be, except those that are not text.
fn sources() -> Result<Vec<Source>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(workspace::root())
        .output()
        .context("run git")?;
    ensure!(listed.status.success(), "git cannot list the files");
    let listed = String::from_utf8(listed.stdout)?;
    let read = |path: &str| {
        let text = std::fs::read_to_string(workspace::root().join(path)).ok()?;
        let path = path.to_owned();
        Some(Source { path, text })
    };
    Ok(listed.split_terminator('\0').filter_map(read).collect())
}

fn is_rust(path: &str) -> bool {
    std::path::Path::new(path)
        .extension()
        .is_some_and(|end| end == "rs")
}

fn metadata() -> Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        // What is only built elsewhere is not ours to license, as in deny.toml.
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
