//! Hosts that forbid user namespaces: nothing works there, and the doctor says why and
//! what to do. Run in the virtual machine, which says which host it is.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::process::Command;

use serde_json::Value;

use crate::support;

/// Which host this is; elsewhere there is nothing to test.
fn profile() -> Option<String> {
    let profile = std::env::var("HOTCELL_VM_PROFILE").ok();
    if profile.is_none() {
        let reason = "it is for the virtual machine only";
        hotcell_testkit::skip(hotcell_testkit::Need::Machine, reason);
    }
    profile
}

fn doctor() -> (Option<i32>, Value) {
    let state = support::scratch();
    let output = Command::new(support::hotcell())
        .args(["doctor", "--json", "--state-dir"])
        .arg(state.path())
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), report)
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|one| one["name"] == name).unwrap()
}

#[test]
fn the_doctor_names_what_forbids_it_and_the_fix() {
    let Some(profile) = profile() else {
        return;
    };
    let (name, fix) = match profile.as_str() {
        "no-userns-clone" => ("user namespaces", "kernel.unprivileged_userns_clone=1"),
        "no-userns-max" => ("user namespaces", "user.max_user_namespaces="),
        "apparmor-userns" | "apparmor-caps" => ("AppArmor", "userns,"),
        other => panic!("no such host: {other}"),
    };
    let (code, report) = doctor();
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(
        finding(&report, "embedded engine")["ok"],
        false,
        "{report:#}"
    );
    let found = finding(&report, name);
    assert_eq!(found["ok"], false, "{report:#}");
    assert!(found["fix"].as_str().unwrap().contains(fix), "{report:#}");
}

#[test]
fn a_run_fails_with_125_points_to_the_doctor_and_leaves_nothing() {
    if profile().is_none() {
        return;
    }
    let state = support::scratch();
    let output = Command::new(support::hotcell())
        .args(["run", "--state-dir"])
        .arg(state.path())
        .args(["--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("hotcell doctor"), "{said}");
    let left = std::fs::read_dir(state.path().join("run/containers")).unwrap();
    assert_eq!(left.count(), 0);
}
