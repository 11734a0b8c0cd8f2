//! A disk that is full.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use hotcell_agent_client::{Agent, AgentRefusal, Operation, Precondition, WriteOptions};
use hotcell_domain::{ContainerSpec, ImageRef, Policy};
use hotcell_engine::Engine;

use super::container::{import, in_time, is_refused, list, plain_archive, read, write};
use crate::support::{assert_nothing_left, engine, new_id, scratch};

/// What fits on the disk.
const DISK: &str = "size=8m";

/// A small filesystem, for as long as this lives.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where we may not mount.
    fn mount() -> Option<Self> {
        let directory = scratch();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "tmpfs"])
            .arg(directory.path())
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(directory));
        }
        let reason = "no filesystem can be mounted here";
        hotcell_testkit::skip(hotcell_testkit::Need::Mounts, reason);
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "a mount was left"
        );
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_what_was_there() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let (engine, id) = (engine(disk.path()), new_id());
    let policy = Policy {
        allow_rootfs: false,
        allow_root: false,
        ..Policy::default()
    };
    let spec = policy.admit(ContainerSpec::new(ImageRef::Host)).unwrap();
    hotcell_engine::fetch_and_create(&engine, &id, &spec)
        .await
        .unwrap();
    let agent = Agent::connect(engine.open(&id).await.unwrap())
        .await
        .unwrap();
    // In a task of its own: whatever becomes of it, the container goes before the disk.
    let filled = tokio::spawn(async move { in_time(fill(&agent)).await }).await;
    engine.destroy(&id).await.unwrap();
    filled.unwrap();
    assert_nothing_left(&id, disk.path());
}

async fn fill(agent: &Agent) {
    let full = [AgentRefusal::Exhausted];
    let large = || Bytes::from(vec![b'x'; 16 << 20]);
    write(agent, b"kept", b"old").await.unwrap();
    let append = WriteOptions {
        append: true,
        ..WriteOptions::default()
    };
    let batch = || {
        vec![
            Operation::Write {
                path: b"kept".to_vec(),
                data: "new".into(),
                options: WriteOptions::default(),
            },
            Operation::Copy {
                path: b"most".to_vec(),
                dest: b"copy".to_vec(),
            },
        ]
    };
    let too_large = agent
        .write_all(b"kept", large(), WriteOptions::default())
        .await;
    assert!(is_refused(&too_large.unwrap_err(), &full));
    let too_long = agent.write_all(b"kept", large(), append).await;
    assert!(is_refused(&too_long.unwrap_err(), &full));
    let packed = plain_archive("unpacked", &large());
    assert!(is_refused(
        &import(agent, b"", packed).await.unwrap_err(),
        &full
    ));
    let most = Bytes::from(vec![b'x'; 5 << 20]);
    agent
        .write_all(b"most", most, WriteOptions::default())
        .await
        .unwrap();
    let copied = agent.copy(b"most", b"copy", false, false).await;
    assert!(is_refused(&copied.unwrap_err(), &full));
    let undone = agent.batch(batch(), true).await;
    assert!(is_refused(&undone.unwrap_err(), &full));
    assert_eq!(read(agent, b"kept").await.unwrap(), b"old");
    let names = list(agent, b"", true).await.unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    agent
        .delete(b"most", false, Precondition::Any)
        .await
        .unwrap();
    write(agent, b"kept", b"new").await.unwrap();
}
