//! Malicious archives.

use bytes::Bytes;
use hotcell_agent_client::bounds::{IMPORT_BYTES_MAX, IMPORT_ENTRIES_MAX};
use hotcell_agent_client::{AgentError, AgentRefusal};
use tar::EntryType;

use super::container::{
    archive, assert_well, file, import, in_time, is_refused, list, make_outside, member, outside,
    plain_archive, read,
};
use crate::support::TestContainer;

fn link(kind: EntryType, name: &str, target: &str) -> Vec<u8> {
    member(kind, name.as_bytes(), target.as_bytes(), 0, b"")
}

fn symlink(name: &str, target: &str) -> Vec<u8> {
    link(EntryType::Symlink, name, target)
}

#[tokio::test]
async fn no_member_leaves_the_directory_it_is_unpacked_into() {
    let container = TestContainer::new().await;
    let before = make_outside(&container).await;
    assert_eq!(
        container
            .sh("mkdir dest && ln -s /tmp/outside dest/there && echo inside > mine")
            .await
            .code(),
        0
    );
    let evil = b"evil".as_slice();
    let traps = [
        vec![file("/tmp/outside/canary", evil)],
        vec![file("../mine", evil)],
        vec![file("a/../../mine", evil)],
        vec![file("there/canary", evil)],
        vec![file("there/new", evil)],
        vec![symlink("s", "/tmp/outside"), file("s/canary", evil)],
        vec![symlink("s", "../../tmp/outside"), file("s/canary", evil)],
        vec![symlink("s", ".."), file("s/mine", evil)],
        vec![
            symlink("a/b/top", "../.."),
            symlink("s", "a/b/top/.."),
            file("s/mine", evil),
        ],
        vec![
            link(EntryType::Link, "h", "/tmp/outside/open"),
            file("h", evil),
        ],
        vec![link(EntryType::Link, "h", "../mine")],
        vec![link(EntryType::Link, "h", "there/open")],
        vec![link(EntryType::Char, "null", "")],
        vec![link(EntryType::Block, "disk", "")],
        vec![link(EntryType::Fifo, "fifo", "")],
    ];
    for (number, trap) in traps.iter().enumerate() {
        let result = in_time(import(&container.agent, b"dest", archive(trap))).await;
        assert!(
            matches!(result, Err(AgentError::Refused { .. })),
            "{number}: {result:?}"
        );
    }
    assert_eq!(outside(&container).await, before);
    assert_eq!(read(&container.agent, b"mine").await.unwrap(), b"inside\n");
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn an_archive_that_lies_about_itself_is_refused() {
    let container = TestContainer::new().await;
    let regular = |size, content: &[u8]| member(EntryType::Regular, b"f", b"", size, content);
    let good = plain_archive("f", &[b'x'; 5000]);
    let mut broken = good.clone();
    broken[148..156].copy_from_slice(b"0000000\0");
    let lies = [
        archive(&[regular(IMPORT_BYTES_MAX + 1, b"")]),
        archive(&[regular(u64::MAX >> 1, b"")]),
        archive(&[regular(1 << 30, b"short")]),
        good[..700].to_vec(),
        good[..3000].to_vec(),
        broken,
        vec![0x1f; 4096],
        long_name(EntryType::XHeader, 2 << 20),
        long_name(EntryType::GNULongName, 2 << 20),
        long_name(EntryType::GNULongName, 5000),
        long_name(EntryType::GNULongLink, 2 << 20),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let error = in_time(import(&container.agent, b"dest", lie))
            .await
            .unwrap_err();
        let ways = [AgentRefusal::InvalidArgument, AgentRefusal::Exhausted];
        assert!(is_refused(&error, &ways), "{number}: {error:?}");
    }
    let left = list(&container.agent, b"", true).await.unwrap();
    assert!(left.iter().all(|entry| entry.path == b"dest"), "{left:?}");
    assert_well(&container).await;
    container.remove().await;
}

/// A file whose name or attributes take so many bytes.
fn long_name(kind: EntryType, bytes: usize) -> Vec<u8> {
    let body = if kind == EntryType::XHeader {
        let mut line = format!("{bytes} path=").into_bytes();
        line.resize(bytes - 1, b'x');
        line.push(b'\n');
        line
    } else {
        vec![b'x'; bytes]
    };
    archive(&[
        member(kind, b"././@LongLink", b"", body.len() as u64, &body),
        file("f", b"x"),
    ])
}

#[tokio::test]
async fn of_two_members_of_one_name_the_last_one_stays() {
    let container = TestContainer::new().await;
    let twice = archive(&[
        file("f", b"first"),
        file("f", b"second"),
        symlink("l", "f"),
        file("l", b"own"),
    ]);
    assert_eq!(
        in_time(import(&container.agent, b"", twice)).await.unwrap(),
        (4, 14)
    );
    assert_eq!(read(&container.agent, b"f").await.unwrap(), b"second");
    assert_eq!(read(&container.agent, b"l").await.unwrap(), b"own");
    container.remove().await;
}

#[tokio::test]
async fn a_million_members_and_one_are_too_many() {
    let container = TestContainer::new().await;
    // Each is the destination itself, so that the host has nothing to do but to count.
    let here = member(EntryType::Directory, b"./", b"", 0, b"");
    let piece = Bytes::from(here.repeat(1000));
    let work = async {
        let mut writer = container.agent.import(b"", 0, 0);
        for _ in 0..=IMPORT_ENTRIES_MAX / 1000 {
            writer.write(piece.clone()).await?;
        }
        writer.finish().await
    };
    let error = in_time(work).await.unwrap_err();
    assert!(is_refused(&error, &[AgentRefusal::Exhausted]), "{error:?}");
    assert_well(&container).await;
    container.remove().await;
}

#[tokio::test]
async fn an_import_whose_sender_is_gone_is_given_up() {
    let container = TestContainer::new().await;
    for _ in 0..20 {
        let mut writer = container.agent.import(b"dest", 0, 0);
        let half = member(EntryType::Regular, b"big", b"", 1 << 30, &[0; 4096]);
        in_time(writer.write(half.into())).await.unwrap();
        drop(writer);
    }
    // All eight places are free again, once the agent has noticed.
    let packed = || plain_archive("f", b"x");
    let again = async {
        while import(&container.agent, b"again", packed()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(again).await;
    let no_rest = async {
        loop {
            let left = list(&container.agent, b"", true).await.unwrap();
            if !left
                .iter()
                .any(|entry| entry.path.windows(9).any(|part| part == b".hotcell-"))
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_time(no_rest).await;
    assert_well(&container).await;
    container.remove().await;
}
