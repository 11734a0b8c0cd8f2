//! Directories that turn into symlinks and back while the agent works in them.

use hotcell_agent_client::{AgentError, Operation, Precondition, WriteOptions};

use super::container::{
    OUTSIDE, archive, background, export, file, import, in_time, list, make_outside, outside, read,
    write,
};
use crate::support::{TestContainer, python};

/// How often each operation is tried at least.
const ROUNDS: usize = 100;

/// Exchanges `flip`, a directory, with `flop`, a symlink, as fast as it can.
const SWAPPER: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/workspace/flip/sub", exist_ok=True)
for name in ("canary", "victim", "sub/canary"):
    open("/workspace/flip/" + name, "w").write("inside")
os.symlink(TARGET, "/workspace/flop")
print("ready", flush=True)
while True:
    for _ in range(50):
        libc.renameat2(-100, b"/workspace/flip", -100, b"/workspace/flop", 2)
    # What an operation moved or deleted is put back, so that the race goes on.
    for name in ("canary", "victim"):
        try:
            fd = os.open("/workspace/flip/" + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            os.write(fd, b"inside")
            os.close(fd)
        except OSError:
            pass
"#;

/// A container in which `flip` is a directory and a symlink to `target` in turns.
async fn swapping(target: &str) -> (TestContainer, String) {
    let container = TestContainer::new().await;
    let before = make_outside(&container).await;
    let script = SWAPPER.replace("TARGET", &format!("{target:?}"));
    drop(background(&container, &python(&script)).await);
    (container, before)
}

/// Tries an operation until it has met the directory and the symlink.
async fn race<F>(name: &str, container: &TestContainer, mut operation: F)
where
    F: AsyncFnMut(&TestContainer) -> Result<(), AgentError>,
{
    let (mut done, mut refused) = (0, 0);
    let work = async {
        while done + refused < ROUNDS || done == 0 || refused == 0 {
            match operation(container).await {
                Ok(()) => done += 1,
                Err(AgentError::Refused { .. }) => refused += 1,
                Err(error) => panic!("{name}: {error}"),
            }
        }
    };
    in_time(work).await;
}

/// What may be read of `flip/canary`: it is put back in two steps.
fn assert_inside(content: &[u8]) {
    assert!(b"inside".starts_with(content), "{content:?}");
}

fn assert_names_inside(paths: impl Iterator<Item = Vec<u8>>) {
    for path in paths {
        let text = String::from_utf8_lossy(&path).into_owned();
        assert!(
            !text.contains("outside-only") && !text.contains("passwd"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_swapped_directory_lets_nothing_be_read_from_outside() {
    for target in [OUTSIDE, "../tmp/outside", "/proc/self/root/tmp/outside"] {
        let (container, before) = swapping(target).await;
        race("stat", &container, async |container| {
            let info = container.agent.stat(b"flip/canary", true).await?;
            assert!(info.size <= 6, "{info:?}");
            Ok(())
        })
        .await;
        race("read", &container, async |container| {
            assert_inside(&read(&container.agent, b"flip/canary").await?);
            Ok(())
        })
        .await;
        race("list", &container, async |container| {
            let entries = list(&container.agent, b"flip", true).await?;
            assert_names_inside(entries.into_iter().map(|entry| entry.path));
            Ok(())
        })
        .await;
        race("export", &container, async |container| {
            let packed = export(&container.agent, b"flip").await?;
            assert_names_inside(members(&packed).into_iter());
            Ok(())
        })
        .await;
        race("copy a tree", &container, async |container| {
            container.agent.copy(b"flip", b"copy", false, true).await?;
            let copied = list(&container.agent, b"copy", true).await?;
            assert_names_inside(copied.into_iter().map(|entry| entry.path));
            container
                .agent
                .delete(b"copy", true, Precondition::Any)
                .await?;
            Ok(())
        })
        .await;
        assert_eq!(outside(&container).await, before);
        container.remove().await;
    }
}

/// The names in an archive, each checked to be whole.
fn members(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().expect("an archive");
    let name = |entry: std::io::Result<tar::Entry<'_, _>>| {
        entry.expect("a whole member").path_bytes().into_owned()
    };
    entries.map(name).collect()
}

#[tokio::test]
async fn a_swapped_directory_lets_nothing_be_changed_outside() {
    let (container, before) = swapping(OUTSIDE).await;
    race("write", &container, async |container| {
        write(&container.agent, b"flip/canary", b"inside")
            .await
            .map(drop)
    })
    .await;
    race("write anew", &container, async |container| {
        write(&container.agent, b"flip/new/deep/file", b"inside").await?;
        container
            .agent
            .delete(b"flip/new", true, Precondition::Any)
            .await
            .map(drop)
    })
    .await;
    race("append", &container, async |container| {
        let append = WriteOptions {
            append: true,
            ..WriteOptions::default()
        };
        container
            .agent
            .write_all(b"flip/open", "x".into(), append)
            .await
            .map(drop)
    })
    .await;
    race("delete", &container, async |container| {
        container
            .agent
            .delete(b"flip/victim", true, Precondition::Any)
            .await
            .map(drop)
    })
    .await;
    race("mkdir", &container, async |container| {
        container.agent.mkdir(b"flip/made/deep", true).await?;
        container
            .agent
            .delete(b"flip/made", true, Precondition::Any)
            .await
            .map(drop)
    })
    .await;
    assert_eq!(outside(&container).await, before);
    container.remove().await;
}

#[tokio::test]
async fn a_swapped_directory_lets_nothing_be_moved_in_or_out() {
    let (container, before) = swapping(OUTSIDE).await;
    write(&container.agent, b"mine", b"inside").await.unwrap();
    race("move out", &container, async |container| {
        container
            .agent
            .rename(b"flip/victim", b"moved", true)
            .await?;
        assert_inside(&read(&container.agent, b"moved").await?);
        Ok(())
    })
    .await;
    race("move in", &container, async |container| {
        write(&container.agent, b"moving", b"inside").await?;
        container
            .agent
            .rename(b"moving", b"flip/canary", true)
            .await
            .map(drop)
    })
    .await;
    race("copy out", &container, async |container| {
        container
            .agent
            .copy(b"flip/canary", b"copied", true, false)
            .await?;
        assert_inside(&read(&container.agent, b"copied").await?);
        Ok(())
    })
    .await;
    race("copy in", &container, async |container| {
        container
            .agent
            .copy(b"mine", b"flip/canary", true, false)
            .await
            .map(drop)
    })
    .await;
    assert_eq!(outside(&container).await, before);
    container.remove().await;
}

#[tokio::test]
async fn a_swapped_directory_lets_no_batch_and_no_archive_out() {
    let (container, before) = swapping(OUTSIDE).await;
    for atomic in [true, false] {
        race("batch", &container, async |container| {
            let results = container.agent.batch(everything(), atomic).await?;
            for (result, operation) in results.into_iter().zip(everything()) {
                let outcome = result?;
                if matches!(operation, Operation::Read { .. }) {
                    assert_inside(&outcome.data);
                }
            }
            Ok(())
        })
        .await;
    }
    race("import", &container, async |container| {
        let members = [file("canary", b"inside"), file("new/deep/file", b"inside")];
        import(&container.agent, b"flip", archive(&members)).await?;
        container
            .agent
            .delete(b"flip/new", true, Precondition::Any)
            .await
            .map(drop)
    })
    .await;
    race("import beneath", &container, async |container| {
        let members = [
            file("flip/canary", b"inside"),
            file("flip/sub/canary", b"inside"),
        ];
        import(&container.agent, b"", archive(&members))
            .await
            .map(drop)
    })
    .await;
    assert_eq!(outside(&container).await, before);
    container.remove().await;
}

/// One of each.
fn everything() -> Vec<Operation> {
    let path = |path: &str| path.as_bytes().to_vec();
    vec![
        Operation::Write {
            path: path("flip/canary"),
            data: "inside".into(),
            options: WriteOptions::default(),
        },
        Operation::Read {
            path: path("flip/canary"),
        },
        Operation::Copy {
            path: path("flip/canary"),
            dest: path("flip/copied"),
        },
        Operation::Mkdir {
            path: path("flip/made"),
        },
        Operation::Move {
            path: path("flip/copied"),
            dest: path("flip/made/moved"),
            precondition: Precondition::Any,
        },
        Operation::Delete {
            path: path("flip/made"),
            recursive: true,
            precondition: Precondition::Any,
        },
        Operation::Delete {
            path: path("flip/victim"),
            recursive: true,
            precondition: Precondition::Any,
        },
    ]
}

#[tokio::test]
async fn a_directory_that_turns_into_the_hosts_own_places_shows_nothing_of_them() {
    for target in ["/etc", "/proc/1", "/", ".."] {
        let (container, before) = swapping(target).await;
        for name in ["passwd", "environ", "etc", "tmp", "workspace/flip"] {
            let path = format!("flip/{name}");
            for _ in 0..ROUNDS {
                let found = in_time(container.agent.stat(path.as_bytes(), true)).await;
                assert!(found.is_err(), "{target}: {found:?}");
                let read = in_time(read(&container.agent, path.as_bytes())).await;
                assert!(read.is_err(), "{target}: {read:?}");
                let written =
                    in_time(container.agent.mkdir(format!("{path}/x").as_bytes(), false)).await;
                assert!(written.is_err(), "{target}: {written:?}");
            }
        }
        race("export", &container, async |container| {
            let packed = export(&container.agent, b"flip").await?;
            assert_names_inside(members(&packed).into_iter());
            Ok(())
        })
        .await;
        assert_eq!(outside(&container).await, before);
        container.remove().await;
    }
}
