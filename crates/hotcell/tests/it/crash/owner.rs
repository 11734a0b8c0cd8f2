//! The owner of a container that is to end with it is killed.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotcell_domain::ContainerId;
use hotcell_engine::Engine as _;

use super::moment::{Moments, nothing_left, take_over};
use crate::support::{engine, eventually, hotcell, leftovers, scratch};

/// Longer than a whole run takes on a quiet machine.
const LONGEST: Duration = Duration::from_millis(80);

fn run(state: &Path, command: &[&str]) -> Child {
    Command::new(hotcell())
        .args(["run", "--state-dir"])
        .arg(state)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn containers(home: &Path) -> Vec<ContainerId> {
    let entries = std::fs::read_dir(home.join("containers"));
    let id = |entry: std::io::Result<std::fs::DirEntry>| {
        ContainerId::parse(entry.ok()?.file_name().to_str()?).ok()
    };
    entries.into_iter().flatten().filter_map(id).collect()
}

#[tokio::test]
async fn a_container_ends_with_its_owner_and_a_sweep_removes_the_rest() {
    let state = scratch();
    let home = state.path().join("run");
    let mut child = run(state.path(), &["sh", "-c", "echo started; sleep 1000"]);
    let mut word = [0; 8];
    child.stdout.take().unwrap().read_exact(&mut word).unwrap();
    let ids = containers(&home);
    assert_eq!(ids.len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its processes end by themselves", || async {
        !leftovers(&ids[0], &home)
            .iter()
            .any(|left| left.starts_with("process"))
    })
    .await;
    for _ in 0..2 {
        assert_eq!(
            engine(&home)
                .sweep(
                    hotcell_engine::Garbage::Containers,
                    hotcell_engine::SweepMode::Count
                )
                .await
                .unwrap()
                .leftovers,
            1
        );
    }
    assert_eq!(
        engine(&home)
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Remove
            )
            .await
            .unwrap()
            .leftovers,
        1
    );
    assert_eq!(
        engine(&home)
            .sweep(
                hotcell_engine::Garbage::Containers,
                hotcell_engine::SweepMode::Count
            )
            .await
            .unwrap()
            .leftovers,
        0
    );
    nothing_left(&ids[0], &home, 0).await;
}

#[tokio::test]
async fn a_run_that_is_killed_at_any_moment_leaves_nothing_that_a_sweep_does_not_find() {
    let state = scratch();
    let home = state.path().join("run");
    for seed in 300..330 {
        let mut child = run(state.path(), &["true"]);
        Moments::of(seed).wait(LONGEST).await;
        let mut ids = containers(&home);
        child.kill().unwrap();
        child.wait().unwrap();
        ids.extend(containers(&home));
        if home.exists() {
            take_over(&home, &ids, seed).await;
        }
    }
}

#[tokio::test]
async fn runs_that_share_a_home_do_not_sweep_each_other() {
    let state = scratch();
    for _ in 0..5 {
        let children: Vec<_> = (0..6)
            .map(|_| run(state.path(), &["echo", "fine"]))
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.stdout, b"fine\n", "{:?}", output.status);
        }
    }
    assert!(containers(&state.path().join("run")).is_empty());
}
