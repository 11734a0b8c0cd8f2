//! Paths that lead out of the root, and unusual file names.

use hotcell_agent_client::{AgentError, AgentRefusal, Operation, Precondition, WriteOptions};

use super::container::{
    archive, assert_well, export, file, import, in_time, is_refused, list, make_outside, outside,
    read, write,
};
use crate::support::TestContainer;

/// Paths of a file that is not beneath `/workspace`.
const WAYS_OUT: [&str; 15] = [
    "..",
    "../tmp/outside/canary",
    "a/../../tmp/outside/canary",
    "/",
    "/etc/passwd",
    "/tmp/outside/canary",
    "/workspace/../tmp/outside/canary",
    "/workspace2",
    "/workspace2/canary",
    "/proc/self/root/tmp/outside/canary",
    "absolute/canary",
    "relative/canary",
    "magic/tmp/outside/canary",
    "cwd/../tmp/outside/canary",
    "file",
];

const NO: [AgentRefusal; 4] = [
    AgentRefusal::Denied,
    AgentRefusal::InvalidArgument,
    AgentRefusal::NotFound,
    AgentRefusal::Conflict { current_etag: None },
];

fn assert_no<T: std::fmt::Debug>(path: &str, result: Result<T, AgentError>) {
    let error = result.expect_err(path);
    assert!(is_refused(&error, &NO), "{path}: {error:?}");
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let container = TestContainer::new().await;
    let before = make_outside(&container).await;
    let links = "mkdir a && echo inside > mine && ln -s /tmp/outside absolute && \
        ln -s ../tmp/outside relative && ln -s /proc/self/root magic && ln -s /proc/1/cwd cwd && \
        ln -s /tmp/outside/canary file";
    assert_eq!(container.sh(links).await.code(), 0);
    for path in WAYS_OUT {
        in_time(every_operation_refuses(&container, path)).await;
    }
    assert_eq!(outside(&container).await, before);
    assert_eq!(read(&container.agent, b"mine").await.unwrap(), b"inside\n");
    container.remove().await;
}

async fn every_operation_refuses(container: &TestContainer, path: &str) {
    let (agent, bytes) = (&container.agent, path.as_bytes());
    assert_no(path, agent.stat(bytes, true).await);
    assert_no(path, read(agent, bytes).await);
    assert_no(path, list(agent, bytes, true).await);
    assert_no(path, export(agent, bytes).await);
    assert_no(path, agent.copy(bytes, b"stolen", true, true).await);
    assert_no(path, write(agent, bytes, b"evil").await);
    let append = WriteOptions {
        append: true,
        ..WriteOptions::default()
    };
    assert_no(path, agent.write_all(bytes, "evil".into(), append).await);
    assert_no(
        path,
        import(agent, bytes, archive(&[file("x", b"evil")])).await,
    );
    let batch = Operation::Read {
        path: bytes.to_vec(),
    };
    assert_no(path, agent.batch(vec![batch], true).await);
    if path != "file" {
        // The link itself may be moved, replaced and deleted, and lies inside.
        assert_no(path, agent.mkdir(bytes, false).await);
        assert_no(path, agent.rename(b"mine", bytes, true).await);
        assert_no(path, agent.rename(bytes, b"stolen", true).await);
        assert_no(path, agent.copy(b"mine", bytes, true, false).await);
        assert_no(path, agent.delete(bytes, true, Precondition::Any).await);
    }
    assert_no(path, agent.stat(b"stolen", false).await);
}

#[tokio::test]
async fn names_are_bytes_of_any_kind() {
    let container = TestContainer::new().await;
    let longest = vec![b'x'; 255];
    let names: [&[u8]; 14] = [
        b"a\nb",
        b"a|b",
        b"\x1b[2J",
        b"\x01\x02\x7f",
        b"\xff\xfe\x80",
        b"caf\xc3\xa9 \xe2\x80\xae",
        b" ",
        b"-rf",
        b"*",
        b"a\\b",
        b"'\"$(id)`",
        b"...",
        b".hotcell-x",
        &longest,
    ];
    for name in names {
        in_time(is_a_name_like_any(&container, name)).await;
    }
    let entries = list(&container.agent, b"", true).await.unwrap();
    assert!(entries.is_empty(), "{entries:?}");
    assert_well(&container).await;
    container.remove().await;
}

async fn is_a_name_like_any(container: &TestContainer, name: &[u8]) {
    let agent = &container.agent;
    let path = [b"dir/", name].concat();
    assert_eq!(write(agent, &path, b"content").await.unwrap().path, path);
    assert_eq!(agent.stat(&path, false).await.unwrap().size, 7);
    let entries = list(agent, b"dir", false).await.unwrap();
    let paths: Vec<_> = entries.iter().map(|entry| &entry.path[..]).collect();
    assert_eq!(paths, [&path[..]]);
    let packed = export(agent, b"dir").await.unwrap();
    assert_eq!(import(agent, b"again", packed).await.unwrap(), (1, 7));
    let unpacked = [b"again/", name].concat();
    assert_eq!(read(agent, &unpacked).await.unwrap(), b"content");
    agent.copy(&path, b"copied", false, false).await.unwrap();
    agent.rename(b"copied", &path, true).await.unwrap();
    let batch = [
        Operation::Read { path: path.clone() },
        Operation::Delete {
            path,
            recursive: false,
            precondition: Precondition::Any,
        },
    ];
    let results = agent.batch(batch.to_vec(), true).await.unwrap();
    assert_eq!(&results[0].as_ref().unwrap().data[..], b"content");
    agent
        .delete(b"dir", false, Precondition::Any)
        .await
        .unwrap();
    agent
        .delete(b"again", true, Precondition::Any)
        .await
        .unwrap();
}

#[tokio::test]
async fn names_and_paths_have_a_length() {
    let container = TestContainer::new().await;
    let too_long = [
        vec![b'x'; 256],
        [b"a/".as_slice(), &[b'x'; 256]].concat(),
        [b"x/".repeat(2048).as_slice(), b"y"].concat(),
        vec![b'/'; 5000],
        b"x/".repeat(100_000),
        b"a\0b".to_vec(),
    ];
    for path in too_long {
        let error = in_time(write(&container.agent, &path, b"x"))
            .await
            .unwrap_err();
        assert!(
            is_refused(&error, &[AgentRefusal::InvalidArgument]),
            "{error:?}"
        );
        let error = in_time(container.agent.stat(&path, false))
            .await
            .unwrap_err();
        assert!(
            is_refused(
                &error,
                &[AgentRefusal::InvalidArgument, AgentRefusal::NotFound]
            ),
            "{error:?}"
        );
    }
    // As long as the kernel takes it: 4095 bytes.
    let mut longest = b"x/".repeat(2047);
    longest.push(b'y');
    in_time(write(&container.agent, &longest, b"deep"))
        .await
        .unwrap();
    assert_eq!(
        in_time(read(&container.agent, &longest)).await.unwrap(),
        b"deep"
    );
    let removed = container.agent.delete(b"x", true, Precondition::Any);
    assert_eq!(in_time(removed).await.unwrap(), 2048);
    assert_well(&container).await;
    container.remove().await;
}
