//! The second disk: the guest's scripts, the plan, the programs to run. Read-only in the guest. And
//! the third, which is empty: a filesystem with project quotas.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::Programs;

const SCRIPTS: [&str; 7] = [
    "init",
    "run",
    "facts",
    "helper",
    "systemd",
    "apparmor-userns.apparmor",
    "apparmor-caps.apparmor",
];

/// Space for filesystem metadata, in addition to the files.
const SLACK_MIB: u64 = 32;

/// Creates the disk in `scratch`; returns its path.
pub(crate) fn make(
    scratch: &Path,
    token: &str,
    profiles: &[String],
    programs: &Programs,
) -> Result<PathBuf> {
    let tree = scratch.join("job");
    for directory in ["bin", "tests"] {
        std::fs::create_dir_all(tree.join(directory))?;
    }
    let recipe = crate::workspace::root().join("tests/vm");
    for script in SCRIPTS {
        copy(&recipe.join(script), &tree.join(script))?;
    }
    std::fs::write(tree.join("token"), token)?;
    if profiles.iter().any(|profile| profile == super::SYSTEMD) {
        std::fs::write(tree.join("hotcell.deb"), package(scratch, programs)?)?;
    }
    let must_run_all = std::env::var("CI").is_ok_and(|ci| ci == "true");
    std::fs::write(tree.join("ci"), if must_run_all { "true" } else { "" })?;
    std::fs::write(tree.join("plan"), profiles.join("\n") + "\n")?;
    let mut links = String::new();
    for (name, binary) in &programs.binaries {
        copy(binary, &tree.join("bin").join(name))?;
        let path = std::path::absolute(binary)?;
        writeln!(links, "{name} {}", path.display())?;
    }
    std::fs::write(tree.join("links"), links)?;
    for (name, program) in &programs.tests {
        copy(program, &tree.join("tests").join(name))?;
    }
    let disk = scratch.join("job.ext4");
    format(&tree, &disk)?;
    Ok(disk)
}

/// The Debian package of the program under test, without what debuggers need.
fn package(scratch: &Path, programs: &Programs) -> Result<Vec<u8>> {
    let mut binaries = programs.binaries.iter();
    let hotcell = binaries.find(|(name, _)| name == "hotcell");
    let (_, hotcell) = hotcell.context("there is no hotcell to pack")?;
    let stripped = scratch.join("hotcell");
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").arg(&stripped).arg(hotcell).status();
    ensure!(status.context("run strip")?.success(), "strip failed");
    crate::dist::debian_package(&stripped)
}

/// The size of the disk with project quotas.
const QUOTA_DISK: &str = "256M";

/// Creates the disk with project quotas in `scratch`; returns its path.
pub(crate) fn make_with_quotas(scratch: &Path) -> Result<PathBuf> {
    let disk = scratch.join("quota.ext4");
    let options = ["-O", "quota,project", "-E", "quotatype=prjquota"];
    make_filesystem(&disk, QUOTA_DISK, &options)?;
    Ok(disk)
}

/// Copies a file with its mode.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
    Ok(())
}

fn format(tree: &Path, disk: &Path) -> Result<()> {
    let size_mib = bytes_below(tree)? / (1 << 20) + SLACK_MIB;
    let tree = tree.to_str().context("the tree has a name in UTF-8")?;
    let options = ["-O", "^has_journal", "-E", "root_owner=0:0", "-d", tree];
    make_filesystem(disk, &format!("{size_mib}M"), &options)
}

fn make_filesystem(disk: &Path, size: &str, options: &[&str]) -> Result<()> {
    let status = Command::new("mkfs.ext4")
        .args(["-q", "-F"])
        .args(options)
        .arg(disk)
        .arg(size)
        .env("PATH", super::image::search_path())
        .stdout(std::process::Stdio::null())
        .status()
        .context("run mkfs.ext4")?;
    ensure!(status.success(), "mkfs.ext4 failed: {status}");
    Ok(())
}

fn bytes_below(tree: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(tree)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            bytes_below(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}
