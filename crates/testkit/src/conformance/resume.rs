//! An exec does not depend on a connection.

use anyhow::ensure;
use hotcell_agent_client::{AgentError, AgentRefusal, Command};

use super::container::{Live, TestContainer, expect_refused, new_exec_id};
use super::{Outcome, Subject};

/// Lines of the counting script: more bytes than the agent buffers.
const LINES: usize = 60_000;

/// Events taken from one stream before it is cut.
const EVENTS_PER_STREAM: usize = 5;

/// Streams that are cut; the last one delivers the rest.
const STREAMS: u32 = 40;

pub(super) async fn closing_the_stream_leaves_the_exec_running(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let ask = container.sh("echo one; read answer; echo $answer");
    let ask = Command { stdin: true, ..ask };
    let first = container.connect().await?;
    let mut live = Live::start(&first, &ask).await?;
    live.until("one").await?;
    drop(first);

    let execs = container.agent.list_execs().await?;
    assert_eq!(execs.len(), 1);
    assert_eq!(execs[0].exec_id, live.exec_id);
    assert!(execs[0].running);
    live.move_to(&container.agent).await?;
    let input = "two\n".into();
    container
        .agent
        .input(&live.exec_id, 0, input, false)
        .await?;
    let ran = live.end().await?;
    assert_eq!(ran.stdout, b"one\ntwo\n");
    assert_eq!(ran.exit.code, Some(0));
    container.end().await
}

pub(super) async fn every_byte_arrives_once_over_many_streams(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = format!("i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); done");
    let first = container.connect().await?;
    let mut live = Live::start(&first, &container.sh(&script)).await?;
    let mut streams = vec![first];
    let mut left = STREAMS;
    while !live.has_ended() {
        for _ in 0..EVENTS_PER_STREAM {
            if !live.step().await? {
                break;
            }
        }
        if !live.has_ended() && left > 0 {
            left -= 1;
            // The old connection is closed only once the new one exists, in the middle of a
            // transfer.
            let next = container.connect().await?;
            live.move_to(&next).await?;
            streams.push(next);
            drop(streams.remove(0));
        }
    }
    let lines: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
    let expected = lines.join("\n") + "\n";
    assert!(
        live.stdout == expected.as_bytes(),
        "bytes were lost or doubled"
    );
    container.end().await
}

pub(super) async fn an_unacknowledged_exec_is_told_again_from_its_beginning(
    subject: &Subject,
) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let command = container.sh("echo out; echo err >&2; exit 3");
    let exec_id = new_exec_id();
    let mut follow = container.agent.start(&exec_id, &command).await?;
    let mut told = Vec::new();
    while let Some(event) = follow.next().await? {
        told.push(event);
    }
    for after_seq in [0, 1] {
        let mut again = container.agent.resume(&exec_id, after_seq).await?;
        for event in told.iter().skip(usize::try_from(after_seq)?) {
            assert_eq!(again.next().await?.as_ref(), Some(event));
        }
        assert_eq!(again.next().await?, None);
    }
    container.end().await
}

pub(super) async fn acknowledged_output_is_gone(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let ask = container.sh("echo one; read answer; echo two");
    let ask = Command { stdin: true, ..ask };
    let mut live = Live::start(&container.agent, &ask).await?;
    live.until("one").await?;
    let acked = live.last_seq;
    // Acknowledgements are asynchronous: it has arrived once the agent lists it.
    while container.agent.list_execs().await?[0].acked_seq < acked {
        tokio::task::yield_now().await;
    }
    let mut again = match container.agent.resume(&live.exec_id, 0).await {
        Ok(follow) => follow,
        Err(error) => {
            expect_conflict::<()>(Err(error));
            return container.end().await;
        }
    };
    expect_conflict(again.next().await);
    container.end().await
}

pub(super) async fn a_second_follower_takes_over(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let ask = container.sh("echo one; read answer; echo two");
    let ask = Command { stdin: true, ..ask };
    let mut first = Live::start(&container.agent, &ask).await?;
    first.until("one").await?;
    let other = container.connect().await?;
    let mut second = other.resume(&first.exec_id, first.last_seq).await?;
    expect_refused(first.step().await, &AgentRefusal::Aborted);
    other.input(&first.exec_id, 0, "\n".into(), true).await?;
    let mut events = 0;
    while let Some(event) = second.next().await? {
        events += 1;
        assert_eq!(event.seq, first.last_seq + events);
    }
    ensure!(events >= 2, "the second follower saw only {events} events");
    container.end().await
}

pub(super) async fn an_exec_id_runs_once(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let command = container.sh("echo run >> runs; cat runs");
    let exec_id = new_exec_id();
    for _ in 0..2 {
        let mut follow = container.agent.start(&exec_id, &command).await?;
        while follow.next().await?.is_some() {}
    }
    assert_eq!(container.said("cat runs").await?, "run\n");
    let another = container.sh("echo another");
    let answer = match container.agent.start(&exec_id, &another).await {
        Ok(mut follow) => follow.next().await,
        Err(error) => Err(error),
    };
    expect_refused(answer, &AgentRefusal::AlreadyExists);
    container.end().await
}

pub(super) async fn finished_execs_are_listed_until_they_are_forgotten(
    subject: &Subject,
) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let wait = Command {
        stdin: true,
        ..container.sh("echo ready; read answer")
    };
    let mut live = Live::start(&container.agent, &wait).await?;
    live.until("ready").await?;
    expect_conflict(container.agent.forget(&live.exec_id).await);
    let exec_id = live.exec_id.clone();
    container
        .agent
        .input(&exec_id, 0, "\n".into(), true)
        .await?;
    live.end().await?;
    let listed = container.agent.list_execs().await?;
    assert_eq!(listed.len(), 1);
    assert!(!listed[0].running);
    assert_eq!(listed[0].stdin_accepted, 1);
    container.agent.forget(&exec_id).await?;
    assert_eq!(container.agent.list_execs().await?, []);
    expect_refused(
        container.agent.forget(&exec_id).await,
        &AgentRefusal::NotFound,
    );
    container.end().await
}

pub(super) async fn a_stopped_reader_holds_up_nobody_else(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let exec_id = new_exec_id();
        let follow = container
            .agent
            .start(&exec_id, &container.sh("yes"))
            .await?;
        unread.push((exec_id, follow));
    }
    let script = "head -c 1000000 /dev/zero | tr '\\0' x";
    assert_eq!(container.said(script).await?.len(), 1_000_000);
    for (exec_id, _follow) in unread {
        container
            .agent
            .cancel(&exec_id, std::time::Duration::ZERO)
            .await?;
    }
    container.end().await
}

/// The state does not allow it, and the reason is not an etag.
fn expect_conflict<T: std::fmt::Debug>(answer: Result<T, AgentError>) {
    expect_refused(answer, &AgentRefusal::Conflict { current_etag: None });
}
