//! No path leads out of the root.

use hotcell_agent_client::{Agent, AgentError, AgentRefusal, Precondition, WriteOptions};

use super::container::{TestContainer, expect_refused};
use super::file::{read, write};
use super::{Outcome, Subject};

pub(super) async fn paths_that_leave_the_root_are_denied(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    write(&container.agent, "dir/file", b"inside").await?;
    let beside = format!("{}2", container.root());
    let above = format!("{}/..", container.root());
    let beside_file = format!("{beside}/file");
    for path in [
        "..",
        "../x",
        "dir/../../x",
        "/",
        "/etc/passwd",
        "/proc/self/environ",
        &beside,
        &beside_file,
        &above,
    ] {
        expect_denied(&container.agent, path).await;
    }
    // A `..` that stays inside is fine, but a path that ends in one names nothing to change.
    assert_eq!(read(&container.agent, "dir/../dir/file").await?, b"inside");
    let delete = container
        .agent
        .delete(b"dir/..", true, Precondition::Any)
        .await;
    expect_refused(delete, &AgentRefusal::Denied);
    container.end().await
}

pub(super) async fn symlinks_that_leave_the_root_are_denied(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "ln -s /etc/passwd abs; ln -s ../../etc/passwd up; ln -s / top; \
                  ln -s /proc/self/root magic; echo in > file; ln -s file fine";
    container.said(script).await?;
    let agent = &container.agent;
    for path in [
        "abs",
        "up",
        "top/etc/passwd",
        "magic/etc/passwd",
        "top/tmp/x",
    ] {
        let answer = agent.read(path.as_bytes(), 0, None).await.map(|_| ());
        expect_refused(answer, &AgentRefusal::Denied);
        let options = WriteOptions::default();
        let answer = agent.write_all(path.as_bytes(), "x".into(), options).await;
        expect_refused(answer, &AgentRefusal::Denied);
    }
    expect_refused(agent.stat(b"abs", true).await, &AgentRefusal::Denied);
    assert_eq!(read(agent, "fine").await?, b"in\n");
    // Removes a link, never its target.
    for link in [b"abs", b"top"] {
        assert_eq!(agent.delete(link, true, Precondition::Any).await?, 1);
    }
    container.end().await
}

pub(super) async fn a_symlinked_directory_is_no_way_out(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    container.said("ln -s / out; echo in > file").await?;
    let agent = &container.agent;
    let denied = AgentRefusal::Denied;
    let list = agent.list(b"out/etc", false, None, 10, None).await;
    expect_refused(list, &denied);
    expect_refused(agent.mkdir(b"out/tmp/made", true).await, &denied);
    expect_refused(agent.rename(b"file", b"out/tmp/file", true).await, &denied);
    expect_refused(
        agent.copy(b"file", b"out/tmp/file", true, false).await,
        &denied,
    );
    expect_refused(agent.copy(b"out/etc", b"etc", true, true).await, &denied);
    let delete = agent.delete(b"out/tmp", true, Precondition::Any).await;
    expect_refused(delete, &denied);
    let export = match agent.export(b"out/etc", &[], &[]).await {
        Ok(mut bytes) => bytes.next().await.map(|_| ()),
        Err(error) => Err(error),
    };
    expect_refused(export, &denied);
    container.end().await
}

pub(super) async fn what_is_no_regular_file_is_not_read(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    container.said("mkfifo pipe; mkdir dir").await?;
    for path in [&b"pipe"[..], b"dir"] {
        let answer = container.agent.read(path, 0, None).await.map(|_| ());
        expect_refused(answer, &AgentRefusal::Conflict { current_etag: None });
    }
    container.end().await
}

/// Neither reading nor writing works.
async fn expect_denied(agent: &Agent, path: &str) {
    let options = WriteOptions {
        create_parents: true,
        ..WriteOptions::default()
    };
    let bytes = path.as_bytes();
    let stat = agent.stat(bytes, true).await.map(|_| ());
    let read = agent.read(bytes, 0, None).await.map(|_| ());
    let write = agent.write_all(bytes, "x".into(), options).await;
    let delete = agent.delete(bytes, true, Precondition::Any).await;
    for (what, answer) in [
        ("stat", stat),
        ("read", read),
        ("write", write.map(|_| ())),
        ("delete", delete.map(|_| ())),
    ] {
        let refused = matches!(
            &answer,
            Err(AgentError::Refused {
                refusal: AgentRefusal::Denied,
                ..
            })
        );
        assert!(refused, "{what} {path}: {answer:?}");
    }
}
