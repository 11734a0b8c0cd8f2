//! Several file operations at once.

use bytes::Bytes;
use hotcell_agent_client::{
    AgentError, AgentRefusal, BatchOutcome, Operation, Precondition, WriteOptions,
};

use super::container::{TestContainer, expect_refused};
use super::file::{paths, read, write};
use super::{Outcome, Subject};

pub(super) async fn a_batch_does_all_of_it(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    write(agent, "old", b"old").await?;
    write(agent, "junk", b"junk").await?;
    let operations = vec![
        Operation::Mkdir {
            path: b"dir".to_vec(),
        },
        put("dir/new", "new"),
        Operation::Copy {
            path: b"dir/new".to_vec(),
            dest: b"dir/twin".to_vec(),
        },
        Operation::Move {
            path: b"old".to_vec(),
            dest: b"dir/moved".to_vec(),
            precondition: Precondition::Any,
        },
        Operation::Delete {
            path: b"junk".to_vec(),
            recursive: false,
            precondition: Precondition::Any,
        },
        Operation::Read {
            path: b"dir/moved".to_vec(),
        },
    ];
    let outcomes = agent.batch(operations, true).await?;
    let outcomes: Vec<BatchOutcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(outcomes[5].data, "old");
    let stat = agent.stat(b"dir/new", false).await?;
    assert_eq!(outcomes[1].info.as_ref(), Some(&stat));
    let all = ["dir", "dir/moved", "dir/new", "dir/twin"];
    assert_eq!(paths(agent, true, None, 100).await?, all);
    assert_eq!(read(agent, "dir/twin").await?, b"new");
    container.end().await
}

pub(super) async fn a_failing_batch_changes_nothing(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let before = write(agent, "file", b"before").await?;
    let stale = Operation::Delete {
        path: b"file".to_vec(),
        recursive: false,
        precondition: Precondition::Matches("0".repeat(before.etag.len())),
    };
    let operations = vec![put("fresh", "fresh"), put("file", "after"), stale];
    let answer = agent.batch(operations, true).await;
    let failed = match &answer {
        Err(AgentError::Refused { .. }) => true,
        Ok(outcomes) => outcomes.iter().any(Result::is_err),
        Err(_) => false,
    };
    assert!(failed, "{answer:?}");
    assert_eq!(paths(agent, true, None, 100).await?, ["file"]);
    assert_eq!(read(agent, "file").await?, b"before");
    container.end().await
}

pub(super) async fn a_loose_batch_does_what_it_can(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let agent = &container.agent;
    let missing = Operation::Read {
        path: b"missing".to_vec(),
    };
    let operations = vec![put("one", "1"), missing, put("two", "2")];
    let mut outcomes = agent.batch(operations, false).await?.into_iter();
    assert!(outcomes.next().is_some_and(|outcome| outcome.is_ok()));
    let refused = outcomes.next().expect("there is one outcome for each");
    expect_refused(refused, &AgentRefusal::NotFound);
    assert!(outcomes.next().is_some_and(|outcome| outcome.is_ok()));
    assert_eq!(paths(agent, true, None, 100).await?, ["one", "two"]);
    container.end().await
}

fn put(path: &str, data: &'static str) -> Operation {
    Operation::Write {
        path: path.into(),
        data: Bytes::from_static(data.as_bytes()),
        options: WriteOptions::default(),
    }
}
