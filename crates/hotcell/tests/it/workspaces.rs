//! Where workspaces are on disk, whose their files are there, and that nobody else gets at them.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hotcell_domain::{ContainerId, Lifetime};
use hotcell_engine::{Abandonment, Engine, Garbage, SweepMode};
use hotcell_testkit::{Need, not_claimed, skip};
use rustix::process::{Signal, getegid, geteuid};
use serde_json::{Value, json};

use crate::crash::moment as crash;
use crate::support::home::Home;
use crate::support::mcp::Client;
use crate::support::server::{Server, send};
use crate::support::{self, TestContainer, new_id, scratch, tree, workspace};

/// Does to files what programs do, in more ways than one.
const SCRIPT: &str = ": >file; mkdir d; : >d/x; rm -r d && mkdir d; mv file d/moved; \
                      [ -O d/moved ] && [ -G d/moved ] && echo own";

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

fn format(path: &Path) -> Value {
    let text = fs::read(path.parent().unwrap().join("format.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[tokio::test]
async fn files_have_plain_ids_on_disk_where_they_can_be_mapped() {
    let container = TestContainer::new().await;
    assert_eq!(container.sh(SCRIPT).await.stdout, "own\n");
    let files = workspace(container.home.path(), &container.id);
    let (ids, wanted) = if geteuid().is_root() {
        ("plain", (1000, 1000))
    } else {
        ("owner", (geteuid().as_raw(), getegid().as_raw()))
    };
    for name in ["", "d", "d/moved"] {
        assert_eq!(owner(&files.join(name)), wanted, "{name}");
    }
    let wanted = json!({ "ids": ids, "layer": "plain" });
    assert_eq!(format(&files), wanted);
    container.remove().await;
}

/// A filesystem that cannot map ids, at a directory that is unmounted when this is dropped.
struct Unmappable(tempfile::TempDir);

impl Unmappable {
    fn mount() -> Option<Self> {
        let base = scratch();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ramfs", "none"]).arg(base.path());
        let is_there = geteuid().is_root() && mount.status().is_ok_and(|status| status.success());
        is_there.then(|| Self(base))
    }
}

impl Drop for Unmappable {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn where_ids_cannot_be_mapped_all_containers_share_one_user() {
    let Some(mounted) = Unmappable::mount() else {
        return skip(Need::Mounts, "a ramfs cannot be mounted");
    };
    let home = mounted.0.path().join("home");
    let engine = support::engine(&home);
    let mut owners = Vec::new();
    for _ in 0..2 {
        let (id, spec) = (new_id(), crash::spec(Lifetime::UntilDestroyed));
        hotcell_engine::fetch_and_create(&engine, &id, &spec)
            .await
            .unwrap();
        let files = workspace(&home, &id);
        assert_eq!(format(&files)["ids"], "owner");
        fs::write(files.join("from-outside"), "x").unwrap();
        let stays = Abandonment::default();
        engine.restart(&id, &stays).await.unwrap();
        let agent = crash::connect(&engine, &id).await;
        agent.mkdir(b"made", false).await.unwrap();
        owners.push(owner(&files.join("made")));
        engine.destroy(&id).await.unwrap();
        crash::nothing_left(&id, &home, 0).await;
    }
    let first = owners[0];
    assert!(
        first.0 >= hotcell_runtime::ids::RANGE_FIRST && first.0 == first.1,
        "{first:?}"
    );
    assert_eq!(owners[1], first);
}

/// Files on disk belong to 1000 or, made by a container's root, to 0, set-user-id or not. What
/// keeps others from running them is that nobody else gets there.
#[tokio::test]
async fn a_set_user_id_program_of_a_workspace_is_out_of_everybodys_reach() {
    if !geteuid().is_root() {
        return not_claimed("the files belong to this user, who can do what they can");
    }
    let Some(container) = TestContainer::with_root().await else {
        return;
    };
    container.sh("chmod 777 .").await;
    let made = container
        .sh_as_root("cp /bin/sh trap && chmod 6755 trap")
        .await;
    assert_eq!(made.code(), 0, "{made:?}");
    let trap = workspace(container.home.path(), &container.id).join("trap");
    assert_eq!(fs::metadata(&trap).unwrap().mode() & 0o7777, 0o6755);
    let run = |path: &Path| {
        Command::new(path)
            .args(["-c", "id -u"])
            .uid(1000)
            .gid(1000)
            .output()
    };
    assert!(run(&trap).is_err(), "somebody else ran it");
    // The control: in a place that others can reach, they can run it.
    let open = scratch();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(&trap, open.path().join("trap")).unwrap();
    assert!(run(&open.path().join("trap")).is_ok());
    // And inside, the mount takes its power away.
    let ran = container
        .sh("grep ' /workspace ' /proc/self/mountinfo; ./trap -p -c 'id -u'")
        .await;
    assert!(ran.stdout.contains("nosuid,nodev"), "{ran:?}");
    assert!(ran.stdout.ends_with("\n1000\n"), "{ran:?}");
    container.remove().await;
}

#[tokio::test]
async fn a_workspace_without_a_container_is_swept_and_no_other() {
    let container = TestContainer::new().await;
    let home = container.home.path();
    let gone: ContainerId = new_id();
    let left = workspace(home, &gone);
    fs::create_dir_all(left.join("closed/deep")).unwrap();
    fs::write(left.join("closed/deep/file"), "x").unwrap();
    if geteuid().is_root() {
        let (kind, mode) = (
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::empty(),
        );
        let whiteout = left.join("closed/whiteout");
        rustix::fs::mknodat(rustix::fs::CWD, whiteout, kind, mode, 0).unwrap();
    }
    for path in ["closed/deep", "closed", ""] {
        fs::set_permissions(left.join(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let sweep = async |mode| {
        let swept = container.engine.sweep(Garbage::Containers, mode).await;
        swept.unwrap().leftovers
    };
    assert_eq!(sweep(SweepMode::Count).await, 1);
    assert!(left.exists());
    assert_eq!(sweep(SweepMode::Remove).await, 1);
    assert!(!left.parent().unwrap().exists());
    assert_eq!(sweep(SweepMode::Count).await, 0);
    assert!(workspace(home, &container.id).exists());
    container.remove().await;
}

#[tokio::test]
async fn what_a_creator_left_of_the_workspace_does_not_hinder_the_next() {
    let home = scratch();
    let engine = support::engine(home.path());
    let (id, spec) = (new_id(), crash::spec(Lifetime::UntilDestroyed));
    let files = workspace(home.path(), &id);
    fs::create_dir_all(files.join("from-before")).unwrap();
    fs::create_dir_all(home.path().join("containers").join(id.as_str())).unwrap();
    hotcell_engine::fetch_and_create(&engine, &id, &spec)
        .await
        .unwrap();
    assert_eq!(fs::read_dir(&files).unwrap().count(), 0);
    engine.destroy(&id).await.unwrap();
    crash::nothing_left(&id, home.path(), 0).await;
}

fn serve(home: &Home) -> Server {
    home.serve_with(&["--drain-grace-s", "0"])
}

fn container_file(home: &Home, id: &ContainerId, name: &str) -> PathBuf {
    let containers = home.engine_home().join("containers");
    containers.join(id.as_str()).join(name)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Makes of a container that does not run what the version before the tree would have made: the
/// workspace in its own directory, with ids of its own range, and a record that names no node.
fn age(home: &Home, id: &ContainerId) -> PathBuf {
    let (state, launch) = (
        container_file(home, id, "state.json"),
        container_file(home, id, "launch.json"),
    );
    let old = container_file(home, id, "workspace");
    let node = workspace(&home.engine_home(), id);
    fs::rename(&node, &old).unwrap();
    fs::remove_dir_all(node.parent().unwrap()).unwrap();
    let mut record = read_json(&state);
    assert!(
        record["record"]
            .as_object_mut()
            .unwrap()
            .remove("node")
            .is_some()
    );
    if let Some(base) = record["record"]["ids"]["Range"]["base"].as_u64() {
        let user = u32::try_from(base).unwrap() + 1000;
        for path in [&old, &old.join("kept")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }
    fs::write(state, record.to_string()).unwrap();
    let mut started = read_json(&launch);
    started["workspace"] = json!(old.to_str().unwrap());
    assert!(
        started
            .as_object_mut()
            .unwrap()
            .remove("workspace_ids")
            .is_some()
    );
    fs::write(launch, started.to_string()).unwrap();
    old
}

fn kill_agent(home: &Home, id: &ContainerId) {
    let pid = &read_json(&container_file(home, id, "state.json"))["record"]["pid"];
    send(u32::try_from(pid.as_u64().unwrap()).unwrap(), Signal::KILL);
}

fn run(client: &mut Client, id: &ContainerId, script: &str) -> String {
    let exec = start(client, id, script);
    let mut text = String::new();
    client.follow(&exec, |message| {
        text.push_str(message["data"].as_str().unwrap());
    });
    text
}

/// The format of a workspace as `list_containers` shows it. `system_status` must count it.
fn ids_shown(client: &mut Client, id: &ContainerId) -> Value {
    let listed = client.ok("list_containers", json!({}));
    let all = listed["containers"].as_array().unwrap().iter();
    let mut one = all.filter(|one| one["container_id"] == id.as_str());
    let ids = one.next().expect("it is listed")["workspace_ids"].clone();
    let status = client.ok("system_status", json!({}));
    // Warm containers are counted too.
    let counted = status["workspaces"][ids.as_str().unwrap()].as_u64();
    assert!(counted >= Some(1), "{ids}: {}", status["workspaces"]);
    ids
}

fn start(client: &mut Client, id: &ContainerId, script: &str) -> Value {
    let run = json!({ "container_id": id.as_str(), "cmd": ["sh", "-c", script] });
    client.ok("exec_start", run)["exec_id"].clone()
}

#[test]
fn a_container_of_the_old_layout_is_adopted_restarted_and_removed() {
    let home = Home::operated();
    let server = serve(&home);
    let mut client = server.client();
    let spawned = client.ok("spawn", json!({ "persistent": true }));
    let id = ContainerId::parse(spawned["container_id"].as_str().unwrap()).unwrap();
    let write = json!({ "container_id": id.as_str(), "path": "kept", "content": "before" });
    client.ok("fs_write", write);
    server.kill();
    kill_agent(&home, &id);
    let old = age(&home, &id);

    // Not running, it is started again from where it is.
    let server = serve(&home);
    let mut client = server.client();
    assert_eq!(
        run(
            &mut client,
            &id,
            "cat kept; echo more >added; [ -O added ]; echo $?"
        ),
        "before0\n"
    );
    assert_eq!(owner(&old.join("added")), owner(&old));
    assert_eq!(ids_shown(&mut client, &id), "shifted");
    // Running, it is adopted.
    server.kill();
    let server = serve(&home);
    let mut client = server.client();
    assert_eq!(run(&mut client, &id, "cat added"), "more\n");
    // Its agent dies under the server, which has noticed when the exec is lost.
    let lost = start(&mut client, &id, "sleep 1000");
    kill_agent(&home, &id);
    let end = client.follow(&lost, |_| ());
    assert_eq!(end["status"], "lost");
    assert_eq!(run(&mut client, &id, "cat added"), "more\n");
    assert!(!workspace(&home.engine_home(), &id).exists());
    client.ok("kill", json!({ "container_id": id.as_str() }));
    assert!(!old.exists());
    // The next one lives in the tree.
    let spawned = client.ok("spawn", json!({}));
    let id = ContainerId::parse(spawned["container_id"].as_str().unwrap()).unwrap();
    let files = workspace(&home.engine_home(), &id);
    assert!(files.is_dir());
    assert!(tree(&home.engine_home()).starts_with(home.path()));
    let format = read_json(&files.with_file_name("format.json"));
    assert_eq!(ids_shown(&mut client, &id), format["ids"]);
    client.ok("kill", json!({ "container_id": id.as_str() }));
    server.terminate();
    home.assert_empty(&[id]);
}
