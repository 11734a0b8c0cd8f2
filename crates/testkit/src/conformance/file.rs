//! Files beneath the agent's root.

use anyhow::Context as _;
use bytes::Bytes;
use hotcell_agent_client::{
    Agent, AgentError, AgentRefusal, Command, FileInfo, FileKind, Precondition, WriteOptions,
};

use super::container::{TestContainer, expect_refused, noise};
use super::{Outcome, Subject};

/// The largest file read back in these cases.
const READ_BYTES_MAX: usize = 16 << 20;

/// Writes that are abandoned halfway.
const ABANDONED: usize = 50;

pub(super) async fn what_was_written_is_read_back(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    for data in [&b""[..], b"text\n", b"\0\xff\xfe binary \x80"] {
        let wrote = write(agent, "deep/er/file", data).await?;
        assert_eq!(wrote.size, data.len() as u64);
        assert_eq!((wrote.kind, wrote.mode), (FileKind::File, 0o644));
        // By the path relative to the root, and by the path that processes use.
        assert_eq!(read(agent, "deep/er/file").await?, data);
        assert_eq!(read(agent, &container.beneath("deep/er/file")).await?, data);
    }
    let options = WriteOptions {
        mode: Some(0o750),
        ..WriteOptions::default()
    };
    let tool = agent.write_all(b"tool", "#!/bin/sh\necho ran\n".into(), options);
    assert_eq!(tool.await?.mode, 0o750);
    let ran = container
        .run(&Command::new([container.beneath("tool")]))
        .await?;
    assert_eq!(ran.stdout, b"ran\n");
    // Without a mode, a replaced file keeps its mode.
    assert_eq!(write(agent, "tool", b"").await?.mode, 0o750);
    container.end().await
}

pub(super) async fn a_part_of_a_file_is_read(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    write(&container.agent, "digits", b"0123456789").await?;
    let parts: [(u64, Option<u64>, &[u8]); 5] = [
        (0, Some(3), b"012"),
        (4, Some(2), b"45"),
        (7, None, b"789"),
        (8, Some(100), b"89"),
        (10, None, b""),
    ];
    for (offset, limit, wanted) in parts {
        let (info, content) = container.agent.read(b"digits", offset, limit).await?;
        assert_eq!(info.size, 10);
        assert_eq!(content.collect(READ_BYTES_MAX).await?, wanted);
    }
    container.end().await
}

pub(super) async fn an_old_etag_is_a_conflict(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let old = write(agent, "file", b"one").await?.etag;
    let new = write_if(agent, "file", b"two", matches(&old)).await?.etag;
    assert_ne!(old, new);
    let conflict = AgentRefusal::Conflict {
        current_etag: Some(new.clone()),
    };
    expect_refused(
        write_if(agent, "file", b"three", matches(&old)).await,
        &conflict,
    );
    expect_refused(agent.delete(b"file", false, matches(&old)).await, &conflict);
    assert_eq!(read(agent, "file").await?, b"two");
    assert_eq!(agent.delete(b"file", false, matches(&new)).await?, 1);
    // A missing file has no etag.
    let missing = AgentRefusal::Conflict { current_etag: None };
    expect_refused(
        write_if(agent, "file", b"four", matches(&new)).await,
        &missing,
    );
    container.end().await
}

pub(super) async fn a_file_that_must_be_absent_is_not_replaced(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let absent = || Precondition::Absent;
    let etag = write_if(agent, "file", b"one", absent()).await?.etag;
    let again = write_if(agent, "file", b"two", absent()).await;
    let refused = matches!(
        &again,
        Err(AgentError::Refused {
            refusal: AgentRefusal::AlreadyExists | AgentRefusal::Conflict { .. },
            ..
        })
    );
    assert!(refused, "{again:?}");
    assert_eq!(read(agent, "file").await?, b"one");
    assert_eq!(agent.stat(b"file", false).await?.etag, etag);
    container.end().await
}

pub(super) async fn appending_keeps_what_was_there(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    for (line, size) in [("one\n", 4), ("two\n", 8)] {
        let options = WriteOptions {
            append: true,
            ..WriteOptions::default()
        };
        let info = container
            .agent
            .write_all(b"log", line.into(), options)
            .await?;
        assert_eq!(info.size, size);
    }
    assert_eq!(read(&container.agent, "log").await?, b"one\ntwo\n");
    container.end().await
}

pub(super) async fn every_way_to_ask_tells_one_etag(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let wrote = write(agent, "file", b"content").await?;
    let stat = agent.stat(b"file", false).await?;
    let (read, _) = agent.read(b"file", 0, None).await?;
    let listed = agent.list(b"", false, None, 10, None).await?.entries;
    assert_eq!(listed.len(), 1);
    assert_eq!([&stat, &read, &listed[0]], [&wrote, &wrote, &wrote]);
    // A write by a process changes the etag too, although name and size stay the same.
    container.said("printf CONTENT > file").await?;
    assert_ne!(agent.stat(b"file", false).await?.etag, wrote.etag);
    container.end().await
}

pub(super) async fn a_listing_pages_in_order(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "mkdir a b; : > a/2; : > a/1; : > b/3; : > c; ln -s c d";
    container.said(script).await?;
    let agent = &container.agent;
    let all = ["a", "a/1", "a/2", "b", "b/3", "c", "d"];
    for limit in [1, 2, 3, 100] {
        assert_eq!(
            paths(agent, true, None, limit).await?,
            all,
            "{limit} a page"
        );
    }
    assert_eq!(paths(agent, false, None, 2).await?, ["a", "b", "c", "d"]);
    let link = agent.stat(b"d", false).await?;
    assert_eq!(link.kind, FileKind::Symlink);
    assert_eq!(link.target.as_deref(), Some(&b"c"[..]));
    assert_eq!(agent.stat(b"d", true).await?.kind, FileKind::File);
    container.end().await
}

pub(super) async fn a_glob_chooses(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "mkdir -p src/deep; : > src/a.rs; : > src/deep/b.rs; : > src/c.txt; : > d.rs";
    container.said(script).await?;
    let agent = &container.agent;
    let chosen = paths(agent, true, Some("**/*.rs"), 100).await?;
    assert_eq!(chosen, ["d.rs", "src/a.rs", "src/deep/b.rs"]);
    let chosen = paths(agent, true, Some("src/*.{rs,txt}"), 100).await?;
    assert_eq!(chosen, ["src/a.rs", "src/c.txt"]);
    container.end().await
}

pub(super) async fn any_name_works(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let long = [b'x'; 255];
    let names: [&[u8]; 6] = [b"new\nline", b"a|b*?[", b"-rf", b"\xff\xfe", b" ", &long];
    for name in names {
        let content = Bytes::copy_from_slice(name);
        agent
            .write_all(name, content, WriteOptions::default())
            .await?;
    }
    let listed = agent.list(b"", false, None, 100, None).await?.entries;
    assert_eq!(listed.len(), names.len());
    for entry in listed {
        assert!(names.contains(&&*entry.path), "{:?}", entry.path);
        let (_, content) = agent.read(&entry.path, 0, None).await?;
        assert_eq!(content.collect(READ_BYTES_MAX).await?, entry.path);
        agent.delete(&entry.path, false, Precondition::Any).await?;
    }
    assert_eq!(container.said("ls -A").await?, "");
    container.end().await
}

pub(super) async fn delete_removes_a_tree_and_protects_the_root(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    container
        .said("mkdir -p tree/a; : > tree/a/1; : > tree/2; ln -s .. tree/up; : > kept")
        .await?;
    let not_empty = agent.delete(b"tree", false, Precondition::Any).await;
    expect_refused(not_empty, &AgentRefusal::Conflict { current_etag: None });
    assert_eq!(agent.delete(b"tree", true, Precondition::Any).await?, 5);
    for root in [&b""[..], b".", container.root().as_bytes()] {
        let protected = agent.delete(root, true, Precondition::Any).await;
        expect_refused(protected, &AgentRefusal::Denied);
    }
    assert_eq!(container.said("ls -A").await?, "kept\n");
    let gone = agent.delete(b"tree", true, Precondition::Any).await;
    expect_refused(gone, &AgentRefusal::NotFound);
    container.end().await
}

pub(super) async fn move_and_copy_keep_the_content(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    write(agent, "tree/file", b"content").await?;
    assert_eq!(
        agent.copy(b"tree", b"twin", false, true).await?.path,
        b"twin"
    );
    assert_eq!(read(agent, "twin/file").await?, b"content");
    agent.rename(b"tree/file", b"new/place", false).await?;
    assert_eq!(read(agent, "new/place").await?, b"content");
    expect_refused(
        agent.stat(b"tree/file", false).await,
        &AgentRefusal::NotFound,
    );
    write(agent, "other", b"other").await?;
    let occupied = agent.rename(b"other", b"new/place", false).await;
    expect_refused(occupied, &AgentRefusal::AlreadyExists);
    let occupied = agent.copy(b"other", b"new/place", false, false).await;
    expect_refused(occupied, &AgentRefusal::AlreadyExists);
    agent.copy(b"other", b"new/place", true, false).await?;
    assert_eq!(read(agent, "new/place").await?, b"other");
    assert_eq!(agent.mkdir(b"x/y", true).await?.kind, FileKind::Directory);
    agent.mkdir(b"x/y", true).await?;
    expect_refused(
        agent.mkdir(b"x/y", false).await,
        &AgentRefusal::AlreadyExists,
    );
    container.end().await
}

pub(super) async fn a_missing_file_is_not_found(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let missing = AgentRefusal::NotFound;
    expect_refused(agent.stat(b"none", false).await, &missing);
    expect_refused(agent.read(b"none", 0, None).await.map(|_| ()), &missing);
    expect_refused(agent.list(b"none", false, None, 1, None).await, &missing);
    expect_refused(agent.rename(b"none", b"some", false).await, &missing);
    expect_refused(agent.copy(b"none", b"some", false, true).await, &missing);
    let orphan = agent.write_all(b"no/parent", Bytes::new(), WriteOptions::default());
    expect_refused(orphan.await, &missing);
    container.end().await
}

pub(super) async fn a_large_file_makes_the_round_trip(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let data = noise(8 << 20);
    write(&container.agent, "large", &data).await?;
    assert!(read(&container.agent, "large").await? == data, "it differs");
    container.end().await
}

pub(super) async fn an_abandoned_write_changes_nothing(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let before = write(&container.agent, "file", b"before").await?;
    // The end of the call races with its cancellation, so once would prove little.
    let data = Bytes::from(noise(1 << 20));
    for round in 0..ABANDONED {
        let mut writer = container.agent.write(b"file", WriteOptions::default());
        writer.write(data.clone()).await?;
        drop(writer);
        let now = read(&container.agent, "file").await?;
        assert!(now == b"before", "in round {round} {} bytes", now.len());
    }
    // The partial file is removed too.
    while container.said("ls -A").await? != "file\n" {
        tokio::task::yield_now().await;
    }
    assert_eq!(container.agent.stat(b"file", false).await?, before);
    container.end().await
}

pub(super) async fn execs_and_files_see_the_same_files(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    write(agent, "ours", b"from files\n").await?;
    agent.mkdir(b"dir", false).await?;
    let script = "cat ours; echo more >> ours; echo from exec > dir/theirs; rm -f none";
    assert_eq!(container.said(script).await?, "from files\n");
    assert_eq!(read(agent, "ours").await?, b"from files\nmore\n");
    assert_eq!(read(agent, "dir/theirs").await?, b"from exec\n");
    write(agent, "dir/theirs", b"changed\n").await?;
    assert_eq!(
        container.said("cat dir/theirs; rm -r dir ours").await?,
        "changed\n"
    );
    assert_eq!(paths(agent, true, None, 10).await?, Vec::<String>::new());
    container.end().await
}

/// Writes a file, creating its parent directories.
pub(super) async fn write(agent: &Agent, path: &str, data: &[u8]) -> anyhow::Result<FileInfo> {
    let wrote = write_if(agent, path, data, Precondition::Any).await;
    wrote.with_context(|| format!("write {path}"))
}

async fn write_if(
    agent: &Agent,
    path: &str,
    data: &[u8],
    precondition: Precondition,
) -> Result<FileInfo, AgentError> {
    let options = WriteOptions {
        precondition,
        create_parents: true,
        ..WriteOptions::default()
    };
    let data = Bytes::copy_from_slice(data);
    agent.write_all(path.as_bytes(), data, options).await
}

/// All of a file.
pub(super) async fn read(agent: &Agent, path: &str) -> anyhow::Result<Vec<u8>> {
    let (info, content) = agent
        .read(path.as_bytes(), 0, None)
        .await
        .with_context(|| format!("read {path}"))?;
    let content = content.collect(READ_BYTES_MAX).await?;
    assert_eq!(info.size, content.len() as u64);
    Ok(content)
}

/// The paths of a complete recursive listing, page by page.
pub(super) async fn paths(
    agent: &Agent,
    recursive: bool,
    glob: Option<&str>,
    limit: u32,
) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    let mut cursor: Option<Vec<u8>> = None;
    loop {
        let page = agent
            .list(b"", recursive, glob, limit, cursor.as_deref())
            .await?;
        assert!(page.entries.len() <= limit as usize);
        for entry in page.entries {
            all.push(String::from_utf8(entry.path)?);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

fn matches(etag: &str) -> Precondition {
    Precondition::Matches(etag.to_owned())
}
