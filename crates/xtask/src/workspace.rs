//! Paths: the repository's root and its build directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = crates.and_then(Path::parent);
    root.expect("xtask lives in crates/xtask").to_owned()
}

/// Cargo's build directory.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds a program in release mode; returns its path.
pub(crate) fn build_release(name: &str) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--package", name])
        .current_dir(root())
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "{name} does not build");
    Ok(target().join("release").join(name))
}
