//! A build for a system that Hotcell does not run on.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::process::{Command, Output};

/// Runs the build script of `runtime` as cargo does for such a system.
fn build_for(system: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("build-script");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime/build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", source, "-o"])
        .arg(&script)
        .status();
    assert!(compiled.unwrap().success());
    let run = Command::new(&script)
        .env("CARGO_CFG_TARGET_OS", system)
        .output();
    run.unwrap()
}

#[test]
fn a_build_for_another_system_ends_with_one_sentence_that_says_what_to_do() {
    for system in ["macos", "windows"] {
        let said = String::from_utf8(build_for(system).stdout).unwrap();
        let errors: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix("cargo::error="))
            .collect();
        assert_eq!(errors.len(), 1, "{said}");
        for words in ["runs on Linux", system, "WSL 2", "URL of a Linux host"] {
            assert!(errors[0].contains(words), "{}", errors[0]);
        }
    }
    let said = String::from_utf8(build_for("linux").stdout).unwrap();
    assert!(!said.contains("cargo::error"), "{said}");
}
