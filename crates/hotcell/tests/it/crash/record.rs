//! A container's record on disk is damaged.

use std::fs;
use std::path::Path;
use std::process::Command;

use hotcell_domain::{ContainerId, Lifetime, Phase};
use hotcell_engine::Engine;

use super::moment::{agent_pid, connect, kill, nothing_left, spec};
use crate::support::{engine, new_id, scratch};

/// Damages the record at a path, given the record of another container.
type Damage = fn(&Path, &[u8]);

const DAMAGES: [(&str, Damage); 10] = [
    ("truncated", |path, _| {
        let text = fs::read(path).unwrap();
        fs::write(path, &text[..text.len() / 2]).unwrap();
    }),
    ("empty", |path, _| fs::write(path, b"").unwrap()),
    ("garbage", |path, _| fs::write(path, [0xff; 100]).unwrap()),
    ("nested", |path, _| {
        fs::write(path, b"[".repeat(60_000)).unwrap();
    }),
    ("huge", |path, _| {
        fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    }),
    ("missing", |path, _| fs::remove_file(path).unwrap()),
    ("a directory", |path, _| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("a symlink to nowhere", |path, _| {
        fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", path).unwrap();
    }),
    ("a symlink to itself", |path, _| {
        fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink(path, path).unwrap();
    }),
    ("another's", |path, another| {
        fs::write(path, another).unwrap();
    }),
];

#[tokio::test]
async fn a_container_whose_record_is_damaged_is_listed_and_destroyed_and_no_other() {
    let home = scratch();
    let engine = engine(home.path());
    let record = |id: &ContainerId| {
        home.path()
            .join("containers")
            .join(id.as_str())
            .join("state.json")
    };
    let (other, spec) = (new_id(), spec(Lifetime::UntilDestroyed));
    hotcell_engine::fetch_and_create(&engine, &other, &spec)
        .await
        .unwrap();
    let another = fs::read(record(&other)).unwrap();
    for (what, damage) in DAMAGES {
        let id = new_id();
        hotcell_engine::fetch_and_create(&engine, &id, &spec)
            .await
            .unwrap();
        damage(&record(&id), &another);
        let listed = engine
            .list()
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(listed.len(), 2, "{what}");
        engine
            .destroy(&id)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        nothing_left(&id, home.path(), 0).await;
        assert_eq!(
            engine.inspect(&other).await.unwrap().phase,
            Phase::Running,
            "{what}"
        );
        connect(&engine, &other)
            .await
            .stat(b"", false)
            .await
            .unwrap();
    }
    engine.destroy(&other).await.unwrap();
    nothing_left(&other, home.path(), 0).await;
}

#[tokio::test]
async fn a_record_from_before_the_host_restarted_names_no_process() {
    let home = scratch();
    let engine = engine(home.path());
    let (id, spec) = (new_id(), spec(Lifetime::UntilDestroyed));
    hotcell_engine::fetch_and_create(&engine, &id, &spec)
        .await
        .unwrap();
    let path = home
        .path()
        .join("containers")
        .join(id.as_str())
        .join("state.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut saved: serde_json::Value = serde_json::from_str(&text).unwrap();
    // As after a restart: the container's init is gone, and somebody else has its number
    // and even started as long after the host.
    kill(agent_pid(&id));
    engine.exited(&id).await.unwrap();
    let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    saved["boot_id"] = "another".into();
    saved["record"]["pid"] = stranger.id().into();
    saved["record"]["start_time"] = hotcell_runtime::start_time(stranger.id()).into();
    fs::write(&path, saved.to_string()).unwrap();
    assert_eq!(engine.inspect(&id).await.unwrap().phase, Phase::Stopped);
    engine.destroy(&id).await.unwrap();
    nothing_left(&id, home.path(), 0).await;
    assert!(
        stranger.try_wait().unwrap().is_none(),
        "a stranger was killed"
    );
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
