//! Trees as tar streams, in and out.

use std::collections::BTreeMap;
use std::io::Read as _;

use hotcell_agent_client::{Agent, AgentError};
use tar::{Builder, EntryType, Header};

use super::container::{TestContainer, noise};
use super::file::{paths, read};
use super::{Outcome, Subject};

/// The largest exported archive in these cases.
const ARCHIVE_BYTES_MAX: usize = 16 << 20;

pub(super) async fn an_archive_makes_the_round_trip(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let blob = noise(300_000);
    let long = format!("tree/{}/{}", "d".repeat(120), "f".repeat(120));
    let archive = archive(&[
        member("tree/", EntryType::Directory, 0o755, b"", ""),
        member("tree/run", EntryType::Regular, 0o755, b"#!/bin/sh\n", ""),
        member("tree/blob", EntryType::Regular, 0o600, &blob, ""),
        member("tree/link", EntryType::Symlink, 0o777, b"", "run"),
        member(&long, EntryType::Regular, 0o644, b"long", ""),
    ])?;
    let (entries, _) = import(agent, "in", &archive).await?;
    assert_eq!(entries, 5);
    assert!(read(agent, "in/tree/blob").await? == blob, "it differs");
    let said = container
        .said("cd in/tree; ls -l run link; readlink link")
        .await?;
    assert!(said.contains("-rwxr-xr-x"), "{said}");
    assert!(said.ends_with("run\n"), "{said}");

    let exported = agent.export(b"in", &[], &[]).await?;
    let exported = exported.collect(ARCHIVE_BYTES_MAX).await?;
    assert!(import(agent, "out", &exported).await?.0 >= 5);
    let found = contents(&exported)?;
    let ends_with = |end: &str| found.iter().find(|(path, _)| path.ends_with(end));
    assert!(ends_with("tree/blob").is_some_and(|(_, data)| *data == blob));
    assert!(ends_with(&long).is_some_and(|(_, data)| data == b"long"));
    container.end().await
}

pub(super) async fn an_archive_that_would_escape_is_refused(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let bad = [
        vec![member("../out", EntryType::Regular, 0o644, b"x", "")],
        vec![member("/abs", EntryType::Regular, 0o644, b"x", "")],
        vec![member("a/../../b", EntryType::Regular, 0o644, b"x", "")],
        vec![member("up", EntryType::Symlink, 0o777, b"", "../..")],
        vec![member("abs", EntryType::Symlink, 0o777, b"", "/etc")],
        vec![member("hard", EntryType::Link, 0o644, b"", "../secret")],
        vec![member("null", EntryType::Char, 0o666, b"", "")],
        vec![member("disk", EntryType::Block, 0o666, b"", "")],
    ];
    for members in bad {
        let archive = archive(&members)?;
        let answer = import(agent, "in/deep", &archive).await;
        let refused = matches!(answer, Err(AgentError::Refused { .. }));
        assert!(refused, "{:?} gave {answer:?}", members[0].0.path_bytes());
    }
    let found = paths(agent, true, None, 100).await?;
    assert!(found.is_empty(), "{found:?}");
    container.end().await
}

pub(super) async fn an_import_is_all_or_nothing(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let script = "mkdir -p in/sub in/busy; echo old > in/sub/file; echo old > in/plain";
    container.said(script).await?;
    let list = "cd in; find . | sort; cat sub/file plain; stat -c %i sub/file plain";
    let before = container.said(list).await?;
    let good = [
        member("sub/file", EntryType::Regular, 0o644, b"new\n", ""),
        member("plain", EntryType::Regular, 0o644, b"new\n", ""),
        member("fresh/deep/file", EntryType::Regular, 0o644, b"new\n", ""),
    ];
    let bad = [
        member("../out", EntryType::Regular, 0o644, b"x", ""),
        member("busy", EntryType::Regular, 0o644, b"x", ""),
    ];
    for bad in bad {
        let members: Vec<Member> = good.iter().cloned().chain([bad]).collect();
        let answer = import(agent, "in", &archive(&members)?).await;
        let refused = matches!(answer, Err(AgentError::Refused { .. }));
        assert!(refused, "{answer:?}");
        assert_eq!(container.said(list).await?, before);
    }
    // An upload that ends early is not a shorter archive.
    let whole = archive(&good)?;
    let mut writer = agent.import(b"in", 0, 0);
    writer.write(whole[..1024].to_vec().into()).await?;
    drop(writer);
    assert_eq!(import(agent, "in", &whole).await?.0, 3);
    assert_eq!(read(agent, "in/sub/file").await?, b"new\n");
    assert_eq!(read(agent, "in/fresh/deep/file").await?, b"new\n");
    // What the interrupted upload left is removed once its end is noticed.
    let left =
        "for try in $(seq 600); do ls -A | grep -q hotcell || exit 0; sleep 0.1; done; ls -A";
    assert_eq!(container.said(left).await?, "", "something of ours is left");
    container.end().await
}

pub(super) async fn an_archive_over_its_bounds_is_refused(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let data = noise(10_000);
    let names = ["one", "two", "three"];
    let members = names.map(|name| member(name, EntryType::Regular, 0o644, &data, ""));
    let archive = archive(&members)?;
    for (bytes_max, entries_max) in [(20_000, 0), (0, 2)] {
        let mut writer = container.agent.import(b"in", bytes_max, entries_max);
        let answer = match writer.write(archive.clone().into()).await {
            Ok(()) => writer.finish().await,
            Err(error) => Err(error),
        };
        assert!(
            matches!(answer, Err(AgentError::Refused { .. })),
            "{answer:?}"
        );
    }
    container.end().await
}

pub(super) async fn an_export_leaves_out_what_it_is_told_to(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "mkdir -p p/src p/target; echo a > p/src/a.rs; echo b > p/src/b.txt; \
                  echo c > p/target/c.rs; mkfifo p/pipe";
    container.said(script).await?;
    let (include, exclude) = (["**/*.rs".to_owned()], ["target/**".to_owned()]);
    let exported = container.agent.export(b"p", &include, &exclude).await?;
    let found = contents(&exported.collect(ARCHIVE_BYTES_MAX).await?)?;
    let files: Vec<_> = found.keys().filter(|path| !path.ends_with('/')).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].ends_with("src/a.rs"), "{files:?}");
    container.end().await
}

/// A member's header, and its content.
type Member = (Header, Vec<u8>, String);

/// Writes the name into the header directly: the `tar` crate would refuse invalid ones.
fn member(name: &str, kind: EntryType, mode: u32, data: &[u8], target: &str) -> Member {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(data.len() as u64);
    header.set_mtime(1_000_000_000);
    put(&mut header.as_old_mut().name, name);
    put(&mut header.as_old_mut().linkname, target);
    header.set_cksum();
    (header, data.to_vec(), name.to_owned())
}

/// As much of the text as fits into the field.
fn put(field: &mut [u8], text: &str) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
}

fn archive(members: &[Member]) -> anyhow::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (header, data, name) in members {
        let fits = name.len() <= header.as_old().name.len();
        let mut header = header.clone();
        if fits {
            builder.append(&header, &**data)?;
        } else {
            builder.append_data(&mut header, name, &**data)?;
        }
    }
    Ok(builder.into_inner()?)
}

async fn import(agent: &Agent, dest: &str, archive: &[u8]) -> Result<(u64, u64), AgentError> {
    let mut writer = agent.import(dest.as_bytes(), 0, 0);
    writer.write(archive.to_vec().into()).await?;
    writer.finish().await
}

/// The files of an archive by path; directories end with a slash.
fn contents(archive: &[u8]) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let mut path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type().is_dir() && !path.ends_with('/') {
            path.push('/');
        }
        let mut data = Vec::new();
        entry.read_to_end(&mut data)?;
        found.insert(path, data);
    }
    Ok(found)
}
