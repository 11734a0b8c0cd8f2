//! Operations on a container that these tests share.

use std::io::Write;

use bytes::Bytes;
use hotcell_agent_client::{
    Agent, AgentError, AgentRefusal, Command, EventKind, FileInfo, Follow, WriteOptions,
};
use tar::{Builder, EntryType, Header};

use crate::support::{TestContainer, deadline, pids};

/// Outside of `/workspace`, writable by the container's user, and never to be touched.
pub(crate) const OUTSIDE: &str = "/tmp/outside";

/// The most memory an agent may ever have had. An idle one has 2 MiB; the largest message
/// has 4, and there may be some of them at once.
pub(crate) const AGENT_KIB_MAX: u64 = 32 << 10;

/// Does something, and gives up after the deadline.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(deadline(), work)
        .await
        .expect("nothing in a container blocks the agent")
}

/// Makes the outside; its shape is what `outside` tells until the end of the test.
pub(crate) async fn make_outside(container: &TestContainer) -> String {
    let made = container
        .sh(&format!(
            "mkdir -p {OUTSIDE}/sub && cd {OUTSIDE} && echo 'never read' > canary && \
             cp canary victim && cp canary sub/canary && cp canary outside-only && umask 0 && touch open"
        ))
        .await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    outside(container).await
}

/// Names, kinds, modes, sizes, times and contents of the outside.
pub(crate) async fn outside(container: &TestContainer) -> String {
    let told = container
        .sh(&format!(
            "cd {OUTSIDE} && ls -lARi --full-time && cat canary victim sub/canary outside-only"
        ))
        .await;
    assert_eq!(told.code(), 0, "{}", told.stderr);
    told.stdout
}

/// A command that goes on in the background, once it has said that it is ready.
pub(crate) async fn background(container: &TestContainer, command: &Command) -> (String, Follow) {
    let id = container.exec_id();
    let command = Command {
        timeout: None,
        ..command.clone()
    };
    let mut follow = container
        .agent
        .start(&id, &command)
        .await
        .expect("it starts");
    let ready = async {
        while let Some(event) = follow.next().await.expect("the agent answers") {
            match event.kind {
                EventKind::Started(_) => {}
                EventKind::Output(..) => return,
                EventKind::Exit(exit) => panic!("it ended: {exit:?}"),
            }
        }
    };
    in_time(ready).await;
    (id, follow)
}

/// The whole content of a file.
pub(crate) async fn read(agent: &Agent, path: &[u8]) -> Result<Vec<u8>, AgentError> {
    let (_, reader) = agent.read(path, 0, None).await?;
    reader.collect(16 << 20).await
}

/// Writes a file, and the directories on the way to it.
pub(crate) async fn write(
    agent: &Agent,
    path: &[u8],
    data: &'static [u8],
) -> Result<FileInfo, AgentError> {
    let options = WriteOptions {
        create_parents: true,
        ..WriteOptions::default()
    };
    agent
        .write_all(path, Bytes::from_static(data), options)
        .await
}

/// Unpacks an archive.
pub(crate) async fn import(
    agent: &Agent,
    dest: &[u8],
    archive: Vec<u8>,
) -> Result<(u64, u64), AgentError> {
    let mut writer = agent.import(dest, 0, 0);
    writer.write(archive.into()).await?;
    writer.finish().await
}

/// Packs a tree of at most 16 MiB.
pub(crate) async fn export(agent: &Agent, path: &[u8]) -> Result<Vec<u8>, AgentError> {
    agent.export(path, &[], &[]).await?.collect(16 << 20).await
}

/// Every entry of a directory or a tree, over all pages.
pub(crate) async fn list(
    agent: &Agent,
    path: &[u8],
    recursive: bool,
) -> Result<Vec<FileInfo>, AgentError> {
    let (mut entries, mut cursor) = (Vec::new(), None);
    loop {
        let page = agent
            .list(path, recursive, None, 1000, cursor.as_deref())
            .await?;
        entries.extend(page.entries);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(entries);
        }
    }
}

/// One member of an archive, with a header that may say anything.
pub(crate) fn member(
    kind: EntryType,
    name: &[u8],
    link: &[u8],
    size: u64,
    content: &[u8],
) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    let old = header.as_old_mut();
    old.name[..name.len()].copy_from_slice(name);
    old.linkname[..link.len()].copy_from_slice(link);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A file of an archive.
pub(crate) fn file(name: &str, content: &[u8]) -> Vec<u8> {
    member(
        EntryType::Regular,
        name.as_bytes(),
        b"",
        content.len() as u64,
        content,
    )
}

/// Members and the end of the archive.
pub(crate) fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.extend([0; 1024]);
    bytes
}

/// An archive of one file as everybody makes it.
pub(crate) fn plain_archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder
        .append_data(&mut header, name, content)
        .expect("memory does not fail");
    let mut bytes = builder.into_inner().expect("memory does not fail");
    bytes.flush().expect("memory does not fail");
    bytes
}

/// Whether the agent refused with one of these errors.
pub(crate) fn is_refused(error: &AgentError, ways: &[AgentRefusal]) -> bool {
    let AgentError::Refused { refusal, .. } = error else {
        return false;
    };
    // A batch is undone, and refused as its operation was.
    if let AgentRefusal::Batch {
        is_undone, refusal, ..
    } = refusal
    {
        return *is_undone && ways.contains(refusal);
    }
    ways.contains(refusal)
}

/// Checks that the agent still serves and that its memory stayed within bounds.
pub(crate) async fn assert_well(container: &TestContainer) {
    let ran = container.sh("echo well").await;
    assert_eq!(ran.stdout, "well\n");
    let peak = agent_peak_kib(container);
    assert!(peak < AGENT_KIB_MAX, "the agent has had {peak} KiB");
}

/// The most memory the agent ever had.
pub(crate) fn agent_peak_kib(container: &TestContainer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent_pid(container)));
    let status = status.expect("the agent lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = peak.and_then(|peak| peak.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("the kernel tells")
}

/// The agent's pid on the host.
pub(crate) fn agent_pid(container: &TestContainer) -> u32 {
    let wanted = format!("hotcell-agent\0init\0--container\0{}\0", container.id);
    let is_agent = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.starts_with(wanted.as_bytes())
    };
    pids().into_iter().find(is_agent).expect("the agent lives")
}
