//! The official conformance suite, on a fixture behind our transports.
//!
//! `tests/clients/install` installs the suite. `expected-failures.yaml` lists expected failures
//! with reasons; the suite itself fails when one of them passes.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::harness::Served;

/// How long one set of requirements may take.
const TIMEOUT: Duration = Duration::from_mins(5);

async fn run(requirements: &str) {
    let Some(suite) = suite() else {
        let reason = "the conformance suite is missing: see tests/clients/install";
        hotcell_testkit::skip(hotcell_testkit::Need::Clients, reason);
        return;
    };
    let served = Served::start().await;
    let expected = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/expected-failures.yaml"
    );
    let running = Command::new(suite)
        .args([
            "server",
            "--url",
            &format!("http://127.0.0.1:{}/mcp", served.port),
        ])
        .args([
            "--requirements",
            requirements,
            "--expected-failures",
            expected,
        ])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TIMEOUT, running)
        .await
        .expect("it ends")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    eprintln!("{said}");
    served.stop().await;
}

fn suite() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let suite = target.join("clients/bin/conformance");
    let installed = target.join("clients/installed-by");
    (suite.is_file() && installed.is_file()).then_some(suite)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_2025_11_25_requires_is_so() {
    run("2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_2026_07_28_requires_is_so() {
    run("2026-07-28").await;
}
