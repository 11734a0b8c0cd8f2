//! Files on more than one mount: beneath the root, at the root, and after an agent's death.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bytes::Bytes;
use hotcell_agent_client as client;
use hotcell_agent_client::{AgentError, AgentRefusal, Operation, Precondition, WriteOptions};
use hotcell_testkit::{Need, skip};
use tokio::net::UnixStream;

use crate::harness::{self, until, within};

/// Marks the end of the output of a [`Mounts::sh`] script.
const DONE: &str = "-- done --";

/// Replaced by one import: enough to kill the agent in the middle.
const FILES: usize = 4000;

/// A mount namespace with an agent in it: its root is a tmpfs, and `other` in it is a second one.
struct Mounts {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
}

impl Mounts {
    /// `None` if nothing can be mounted; then the test is skipped.
    async fn start() -> Option<(Self, client::Agent)> {
        let mut shell = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mut mounts = Self {
            shell,
            input,
            output: BufReader::new(output),
            directory: tempfile::tempdir().unwrap(),
        };
        let root = mounts.root();
        let root = root.display();
        let mounted = mounts.sh(&format!(
            "mkdir {root} && mount -t tmpfs one {root} && mkdir {root}/other && \
             mount -t tmpfs two {root}/other && cd {root} && echo mounted"
        ));
        if mounted != "mounted\n" {
            skip(
                Need::Mounts,
                "a user cannot mount in a namespace of its own",
            );
            return None;
        }
        let program = harness::program();
        let socket = mounts.socket();
        mounts.sh(&format!(
            "{} init --root {root} --linger-ms 100 --listen-path {} </dev/null >/dev/null & cd {root}",
            Path::new(&program).display(),
            socket.display()
        ));
        let agent = connect(&socket).await;
        Some((mounts, agent))
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    /// Runs a script in the namespace and returns its output.
    fn sh(&mut self, script: &str) -> String {
        writeln!(self.input, "{script}\necho '{DONE}'").unwrap();
        let mut printed = String::new();
        while self.output.read_line(&mut printed).unwrap_or(0) > 0 {
            // The last line may lack a newline.
            if let Some(all) = printed.trim_end().strip_suffix(DONE) {
                return all.to_owned();
            }
        }
        printed
    }

    /// All files with their content.
    fn tree(&mut self) -> String {
        self.sh("find . -type f -o -type l -o -type p | sort | while read f; do \
                 if [ -p $f ]; then echo $f; else echo $f $(cat $f); fi; done; find . -type d | sort")
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

async fn connect(socket: &Path) -> client::Agent {
    let mut stream = None;
    until("the agent listens", || {
        stream = std::os::unix::net::UnixStream::connect(socket).ok();
        stream.is_some()
    })
    .await;
    let stream = stream.unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = UnixStream::from_std(stream).unwrap();
    client::Agent::connect(stream).await.unwrap()
}

async fn read(agent: &client::Agent, path: &str) -> String {
    let (_, reader) = agent.read(path.as_bytes(), 0, None).await.unwrap();
    String::from_utf8(reader.collect(1 << 20).await.unwrap()).unwrap()
}

async fn write(agent: &client::Agent, path: &str, content: &'static str) {
    let content = Bytes::from_static(content.as_bytes());
    let options = WriteOptions {
        create_parents: true,
        ..WriteOptions::default()
    };
    agent
        .write_all(path.as_bytes(), content, options)
        .await
        .unwrap();
}

async fn import(agent: &client::Agent, members: &[(&str, &str)]) -> Result<(u64, u64), AgentError> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    let mut writer = agent.import(b"", 0, 0);
    let _ = writer.write(archive.into_inner().unwrap().into()).await;
    within(writer.finish()).await
}

#[tokio::test]
async fn what_is_mounted_at_the_root_is_what_is_served() {
    let Some((mut mounts, agent)) = Mounts::start().await else {
        return;
    };
    write(&agent, "file", "before").await;
    let root = mounts.root();
    let root = root.display();
    mounts.sh(&format!(
        "mount -t tmpfs three {root} && echo after >{root}/file"
    ));
    assert_eq!(read(&agent, "file").await, "after\n");
    write(&agent, "new", "in the new one").await;
    assert_eq!(
        mounts.sh(&format!("cat {root}/new; cat ./file")),
        "in the new onebefore"
    );
    // The agent holds it, so it is unmounted lazily, as a host would do.
    mounts.sh(&format!("umount --lazy {root}"));
    assert_eq!(read(&agent, "file").await, "before");
    assert!(agent.stat(b"new", false).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_move_to_another_mount_copies_all_of_it() {
    let Some((mut mounts, agent)) = Mounts::start().await else {
        return;
    };
    write(&agent, "tree/deep/file", "content").await;
    mounts
        .sh("ln -s deep/file tree/link; touch -d @1000000000 tree/deep/file; echo old >other/old");
    agent.rename(b"tree", b"other/tree", false).await.unwrap();
    let stat = agent.stat(b"other/tree/deep/file", false).await.unwrap();
    assert_eq!(mounts.sh("stat -c %Y other/tree/deep/file"), "1000000000\n");
    assert_eq!(stat.size, 7);
    assert_eq!(read(&agent, "other/tree/link").await, "content");
    let moved = agent.rename(b"other/tree/deep/file", b"back", false).await;
    let stat = agent.stat(b"back", false).await.unwrap();
    assert_eq!(moved.unwrap().etag, stat.etag);
    let refused = agent
        .rename(b"back", b"other/old", false)
        .await
        .unwrap_err();
    assert!(
        is_refused(&refused, &AgentRefusal::AlreadyExists),
        "{refused:?}"
    );
    agent.rename(b"back", b"other/old", true).await.unwrap();
    let expected =
        "./other/old content\n./other/tree/link\n.\n./other\n./other/tree\n./other/tree/deep\n";
    assert_eq!(mounts.tree(), expected);
}

#[tokio::test]
async fn what_cannot_be_copied_stays_where_it_is() {
    let Some((mut mounts, agent)) = Mounts::start().await else {
        return;
    };
    mounts.sh("mkdir tree; echo a >tree/file; mkfifo tree/pipe");
    let before = mounts.tree();
    let error = agent
        .rename(b"tree", b"other/tree", false)
        .await
        .unwrap_err();
    let wrong_kind = AgentRefusal::Conflict { current_etag: None };
    assert!(is_refused(&error, &wrong_kind), "{error:?}");
    assert_eq!(mounts.tree(), before);
    mounts.sh("rm tree/pipe");
    agent.rename(b"tree", b"other/tree", false).await.unwrap();
}

#[tokio::test]
async fn an_atomic_batch_over_two_mounts_is_all_or_nothing() {
    let Some((mut mounts, agent)) = Mounts::start().await else {
        return;
    };
    mounts.sh("echo a >a; mkdir d; echo b >d/b; echo old >other/old; echo gone >other/gone");
    let before = mounts.tree();
    let write = |path: &str| Operation::Write {
        path: path.into(),
        data: Bytes::from_static(b"new"),
        options: WriteOptions::default(),
    };
    let rename = |path: &str, dest: &str| Operation::Move {
        path: path.into(),
        dest: dest.into(),
        precondition: Precondition::Any,
    };
    let operations = vec![
        write("other/old"),
        write("other/fresh"),
        rename("a", "other/a"),
        rename("d", "other/d"),
        rename("other/a", "back"),
        Operation::Delete {
            path: b"other/gone".to_vec(),
            recursive: true,
            precondition: Precondition::Any,
        },
        Operation::Mkdir {
            path: b"other/made".to_vec(),
        },
        Operation::Copy {
            path: b"other/d".to_vec(),
            dest: b"copy".to_vec(),
        },
    ];
    let mut failing = operations.clone();
    failing.push(rename("missing", "anywhere"));
    let error = agent.batch(failing, true).await.unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
    assert_eq!(mounts.tree(), before);
    for outcome in agent.batch(operations, true).await.unwrap() {
        outcome.unwrap();
    }
    let expected = "./back a\n./copy/b b\n./other/d/b b\n./other/fresh new\n./other/old new\n\
                    .\n./copy\n./other\n./other/d\n./other/made\n";
    assert_eq!(mounts.tree(), expected);
}

#[tokio::test]
async fn an_import_over_two_mounts_is_all_or_nothing() {
    let Some((mut mounts, agent)) = Mounts::start().await else {
        return;
    };
    mounts.sh("echo old >other/old; echo old >here; mkdir zz; echo kept >zz/file");
    let before = mounts.tree();
    let good = [
        ("here", "new"),
        ("fresh/file", "new"),
        ("other/old", "new"),
        ("other/deep/file", "new"),
    ];
    let bad = [&good[..], &[("zz", "a file where a directory is")]].concat();
    import(&agent, &bad).await.unwrap_err();
    assert_eq!(mounts.tree(), before);
    assert_eq!(import(&agent, &good).await.unwrap().0, 4);
    let expected = "./fresh/file new\n./here new\n./other/deep/file new\n./other/old new\n./zz/file kept\n\
                    .\n./fresh\n./other\n./other/deep\n./zz\n";
    assert_eq!(mounts.tree(), expected);
}

/// An agent with its own root, which a test may kill.
fn start(root: &Path, socket: &Path) -> Child {
    Command::new(harness::program())
        .args(["init", "--root"])
        .arg(root)
        .arg("--listen-path")
        .arg(socket)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

fn leftovers(root: &Path) -> usize {
    let entries = fs::read_dir(root).unwrap();
    let hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(".hotcell");
    entries
        .filter(|entry| hidden(&entry.as_ref().unwrap().file_name()))
        .count()
}

#[tokio::test]
async fn an_agent_that_dies_in_the_middle_of_an_import_leaves_all_of_it_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (root, socket) = (
        directory.path().join("root"),
        directory.path().join("agent"),
    );
    fs::create_dir_all(root.join("d")).unwrap();
    let names: Vec<String> = (0..FILES).map(|number| format!("d/{number:04}")).collect();
    for name in &names {
        fs::write(root.join(name), "old").unwrap();
    }
    let members: Vec<_> = names.iter().map(|name| (name.as_str(), "new")).collect();
    let new = || {
        let files = names.iter().map(|name| fs::read(root.join(name)).unwrap());
        files.filter(|content| content == b"new").count()
    };
    let mut cut_off = 0;
    // Not every round hits the middle.
    for _ in 0..20 {
        let mut agent = start(&root, &socket);
        let server = connect(&socket).await;
        let (killed, _) = tokio::join!(
            tokio::task::spawn_blocking({
                let (first, root) = (root.join(&names[0]), root.clone());
                let names = names.clone();
                move || {
                    // The order of directory entries is arbitrary, so check a few.
                    let looked_at: Vec<_> = names
                        .iter()
                        .step_by(400)
                        .map(|name| root.join(name))
                        .collect();
                    while !looked_at
                        .iter()
                        .any(|path| fs::read(path).is_ok_and(|new| new == b"new"))
                    {
                        if !first.exists() {
                            return agent;
                        }
                    }
                    agent.kill().unwrap();
                    agent.wait().unwrap();
                    agent
                }
            }),
            import(&server, &members),
        );
        drop(killed);
        let moved = new();
        cut_off += usize::from((1..FILES).contains(&moved));
        let mut next = start(&root, &socket);
        let server = connect(&socket).await;
        until("what the dead agent left is gone", || leftovers(&root) == 0).await;
        let after = new();
        assert!(
            after == 0 || after == FILES,
            "{after} of {FILES} are new ({moved} before)"
        );
        drop(server);
        next.kill().unwrap();
        next.wait().unwrap();
        for name in &names {
            fs::write(root.join(name), "old").unwrap();
        }
        if cut_off > 0 {
            return;
        }
    }
    panic!("no round ended in the middle: the test shows nothing");
}

fn is_refused(error: &AgentError, wanted: &AgentRefusal) -> bool {
    matches!(error, AgentError::Refused { refusal, .. } if refusal == wanted)
}
