//! Builds `hotcell-agent` as a static program, so that `cargo build` of the server is
//! still one command.
//!
//! A second cargo runs in a target directory of its own: the outer one holds the lock
//! on the usual one, and every profile of the server shares one agent this way.
//! `HOTCELL_AGENT_BINARY` names a finished agent instead, for packagers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the outer cargo or clippy sets and the inner cargo must not see.
const NOT_FOR_THE_AGENT: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
];

fn main() {
    println!("cargo::rerun-if-env-changed=HOTCELL_AGENT_BINARY");
    let agent = match std::env::var_os("HOTCELL_AGENT_BINARY") {
        Some(path) => PathBuf::from(path),
        None => build(),
    };
    println!("cargo::rerun-if-changed={}", agent.display());
    println!("cargo::rustc-env=HOTCELL_AGENT_IMAGE={}", agent.display());
}

fn build() -> PathBuf {
    // Asked for when it runs: a build directory may have been moved here from another checkout.
    let crates = Path::new(&variable("CARGO_MANIFEST_DIR")).join("..");
    for source in [
        "agent/src",
        "agent/Cargo.toml",
        "agent-api/src",
        "agent-api/Cargo.toml",
        "disk-usage/src",
        "disk-usage/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={}", crates.join(source).display());
    }
    println!(
        "cargo::rerun-if-changed={}",
        crates.join("../Cargo.toml").display()
    );

    let triple = variable("TARGET");
    let directory = target_directory().join("agent");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(&crates)
        .args([
            "build",
            "--locked",
            "--package",
            "hotcell-agent",
            "--profile",
            "agent",
        ])
        // An explicit target, because proc macros cannot be built with static libc.
        .args(["--target", &triple, "--target-dir"])
        .arg(&directory)
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    for name in NOT_FOR_THE_AGENT {
        cargo.env_remove(name);
    }
    let status = cargo
        .status()
        .expect("cargo started this script, so it can be started again");
    assert!(status.success(), "hotcell-agent does not build");
    directory.join(triple).join("agent/hotcell-agent")
}

/// `target/`, above `target/PROFILE/build/PACKAGE/out`, wherever it is.
fn target_directory() -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR"));
    let build = out.ancestors().find(|path| path.ends_with("build"));
    let mut above = build
        .expect("cargo runs build scripts below `build`")
        .to_owned();
    above.pop();
    above.pop();
    // With an explicit target there is one more level.
    if above
        .file_name()
        .is_some_and(|name| *name == *variable("TARGET"))
    {
        above.pop();
    }
    above
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
