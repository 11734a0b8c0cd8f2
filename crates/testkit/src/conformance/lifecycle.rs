//! Creating, finding and ending containers.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::{join_all, try_join_all};
use hotcell_agent_client::{Agent, AgentError, Command, WriteOptions};
use hotcell_domain::{ContainerId, Phase};

use hotcell_engine::{Abandonment, Engine, EngineError, Progress, Pull};

use super::container::{Live, TestContainer, admitted, expect_not_found, new_id};
use super::{Outcome, Subject, claimed};

/// Containers created concurrently.
const AT_ONCE: usize = 20;

/// A create that is polled this often has completed.
const TURNS_MAX: usize = 64;

/// Repetitions of a dropped create, and the most polls of each.
const REPETITIONS: usize = 12;
const TURNS_OF_REPETITION_MAX: usize = 3;

/// Poll interval.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

pub(super) async fn a_new_container_says_hello(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let hello = container.agent.hello();
    assert!(hello.root.starts_with('/'));
    assert!(!hello.version.is_empty());
    assert_ne!(hello.boot_id, [0; 16]);
    assert_eq!(container.said("echo hi").await?, "hi\n");
    container.end().await
}

pub(super) async fn creating_twice_is_one_container(subject: &Subject) -> Outcome {
    let first = TestContainer::make(subject).await?;
    let spec = admitted(subject, |_| ())?;
    let again = hotcell_engine::fetch_and_create(&*subject.engine, &first.id, &spec).await?;
    assert_eq!(again.id, first.id);
    assert_eq!(again.phase, Phase::Running);
    let second = first.connect().await?;
    assert_eq!(second.hello().boot_id, first.agent.hello().boot_id);
    assert_eq!(listed(&*subject.engine).await?.len(), 1);
    first.end().await
}

pub(super) async fn two_creators_at_once_make_one_container(subject: &Subject) -> Outcome {
    let id = new_id();
    let spec = admitted(subject, |_| ())?;
    // Both callers can use the container once their create returns.
    let create = || async {
        let created = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec)
            .await
            .context("create")?;
        assert_eq!((&created.id, created.phase), (&id, Phase::Running));
        let container = TestContainer::attach(subject, id.clone(), created).await?;
        anyhow::Ok(container.agent.hello().boot_id)
    };
    let (one, two) = tokio::join!(create(), create());
    assert_eq!(one?, two?);
    assert_eq!(
        listed(&*subject.engine).await?,
        BTreeSet::from([id.clone()])
    );
    subject.engine.destroy(&id).await?;
    expect_not_found(&subject.engine.inspect(&id).await);
    Ok(())
}

pub(super) async fn a_container_is_listed_and_inspected_as_running(subject: &Subject) -> Outcome {
    ensure!(listed(&*subject.engine).await?.is_empty(), "not empty");
    let container = TestContainer::make(subject).await?;
    assert_eq!(container.info.id, container.id);
    assert_eq!(container.info.phase, Phase::Running);
    let inspected = subject.engine.inspect(&container.id).await?;
    assert_eq!(inspected.id, container.id);
    assert_eq!(inspected.phase, Phase::Running);
    assert_eq!(inspected.enforced, container.info.enforced);
    assert_eq!(inspected.oom_kills, 0);
    // This id tells whether a container is of the image that its name currently refers to.
    let spec = admitted(subject, |_| ())?;
    let stays = Abandonment::default();
    let fetched = subject.engine.fetch_image(&spec, Pull::Never, &stays);
    let image = fetched.await?;
    let image_id = image.id().map(str::to_owned);
    assert_eq!(container.info.image_id, image_id);
    assert_eq!(inspected.image_id, image_id);
    let all = subject.engine.list().await?;
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].id, all[0].phase), (&container.id, Phase::Running));
    assert_eq!(all[0].image_id, image_id);
    container.end().await
}

pub(super) async fn a_destroyed_container_is_not_found(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let id = container.id.clone();
    subject.engine.sync(std::slice::from_ref(&id)).await?;
    container.end().await?;
    // Syncing may come too late, which is fine.
    subject.engine.sync(std::slice::from_ref(&id)).await?;
    expect_nothing_of(subject, &id).await
}

pub(super) async fn what_was_never_made_is_not_found(subject: &Subject) -> Outcome {
    expect_nothing_of(subject, &new_id()).await
}

pub(super) async fn destroy_ends_running_execs(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let script = "echo ready; trap '' TERM HUP INT; sleep 1000 & while :; do wait; done";
    let mut live = Live::start(&container.agent, &container.sh(script)).await?;
    live.until("ready").await?;
    container.end().await?;
    expect_lost(live).await;
    Ok(())
}

pub(super) async fn two_streams_work_at_once(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let other = container.connect().await?;
    assert_eq!(other.hello(), container.agent.hello());
    let ask = container.sh("echo one; read answer; echo $answer");
    let ask = Command { stdin: true, ..ask };
    let mut first = Live::start(&container.agent, &ask).await?;
    first.until("one").await?;
    let second = Live::start(&other, &container.sh("echo two")).await?;
    assert_eq!(second.end().await?.stdout, b"two\n");
    // A command started over one connection can be used over another; closing the first does no
    // harm.
    other
        .input(&first.exec_id, 0, "three\n".into(), true)
        .await?;
    drop(other);
    assert_eq!(first.end().await?.stdout, b"one\nthree\n");
    container.end().await
}

pub(super) async fn containers_share_no_files(subject: &Subject) -> Outcome {
    let (one, two) = (
        TestContainer::make(subject).await?,
        TestContainer::make(subject).await?,
    );
    assert_ne!(one.agent.hello().boot_id, two.agent.hello().boot_id);
    let options = WriteOptions::default();
    one.agent.write_all(b"mine", "1".into(), options).await?;
    let page = two.agent.list(b"", true, None, 100, None).await?;
    assert_eq!(page.entries, []);
    one.end().await?;
    assert_eq!(two.said("echo alive").await?, "alive\n");
    two.end().await
}

pub(super) async fn a_shut_down_container_has_exited_and_can_be_destroyed(
    subject: &Subject,
) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let mut live = Live::start(&container.agent, &container.sh("echo ready; sleep 1000")).await?;
    live.until("ready").await?;
    let exited = subject.engine.exited(&container.id);
    let (exited, told) = tokio::join!(exited, container.agent.shutdown(Duration::from_millis(100)));
    exited.context("exited")?;
    told.context("shutdown")?;
    let phase = subject.engine.inspect(&container.id).await?.phase;
    assert!(matches!(phase, Phase::Stopped | Phase::Failed), "{phase:?}");
    let listed = subject.engine.list().await?;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].phase, phase);
    let reached = match subject.engine.open(&container.id).await {
        Ok(stream) => Agent::connect(stream).await.is_ok(),
        Err(_) => false,
    };
    assert!(!reached, "an agent still answers");
    let id = container.id.clone();
    container.end().await?;
    expect_nothing_of(subject, &id).await
}

pub(super) async fn waiting_for_the_end_returns_on_destroy(subject: &Subject) -> Outcome {
    let container = TestContainer::make(subject).await?;
    let exited = subject.engine.exited(&container.id);
    let mut exited = pin!(exited);
    let early = poll_fn(|cx| Poll::Ready(exited.as_mut().poll(cx).is_ready())).await;
    assert!(!early, "it has not exited yet");
    // The wait ends either way; whether the container is still known is a race.
    let (_, destroyed) = tokio::join!(exited, subject.engine.destroy(&container.id));
    destroyed.context("destroy")
}

pub(super) async fn twenty_containers_are_made_at_once(subject: &Subject) -> Outcome {
    let containers = try_join_all((0..AT_ONCE).map(|_| TestContainer::make(subject))).await?;
    let made: BTreeSet<_> = containers
        .iter()
        .map(|container| container.id.clone())
        .collect();
    assert_eq!(listed(&*subject.engine).await?, made);
    let said = join_all(
        containers
            .iter()
            .map(|container| container.said("echo $((6 * 7))")),
    )
    .await;
    for words in said {
        assert_eq!(words?, "42\n");
    }
    let ended = join_all(containers.into_iter().map(TestContainer::end)).await;
    ended.into_iter().collect()
}

pub(super) async fn a_dropped_create_leaves_nothing(subject: &Subject) -> Outcome {
    let spec = admitted(subject, |_| ())?;
    for turns in 0..TURNS_MAX {
        let id = new_id();
        let create = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec);
        if let Some(made) = poll_at_most(turns, create).await {
            made.context("create")?;
            subject.engine.destroy(&id).await?;
            break;
        }
        until_unlisted(subject, &id).await?;
        // Creating another container gives the dropped create time to finish what it had begun.
        TestContainer::make(subject).await?.end().await?;
        until_unlisted(subject, &id).await?;
        expect_not_found(&subject.engine.inspect(&id).await);
    }
    Ok(())
}

pub(super) async fn an_abandoned_create_leaves_nothing(subject: &Subject) -> Outcome {
    let spec = admitted(subject, |_| ())?;
    let (engine, progress) = (&*subject.engine, Progress::default());
    for turns in 0..TURNS_MAX {
        let (id, abandonment) = (new_id(), Abandonment::default());
        let pull = Pull::IfMissing(&progress);
        let image = engine.fetch_image(&spec, pull, &abandonment).await?;
        let mut create = pin!(engine.create(&id, &spec, image, &abandonment));
        let mut made = poll_at_most(turns, create.as_mut()).await;
        if made.is_none() {
            abandonment.abandon();
            made = Some(create.await);
        }
        match made.context("it has an answer")? {
            Err(EngineError::Abandoned) => until_unlisted(subject, &id).await?,
            Ok(_) => {
                engine.destroy(&id).await?;
                break;
            }
            Err(error) => return Err(error.into()),
        }
        expect_not_found(&engine.inspect(&id).await);
    }
    Ok(())
}

pub(super) async fn a_dropped_create_can_be_repeated(subject: &Subject) -> Outcome {
    let spec = admitted(subject, |_| ())?;
    for turns in 1..TURNS_MAX {
        let id = new_id();
        let dropped = poll_at_most(
            turns,
            hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec),
        )
        .await;
        let created = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec).await?;
        let container = TestContainer::attach(subject, id, created).await?;
        assert_eq!(container.said("echo hi").await?, "hi\n");
        assert_eq!(listed(&*subject.engine).await?.len(), 1);
        container.end().await?;
        if dropped.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_dropped_repetition_of_create_leaves_the_container(
    subject: &Subject,
) -> Outcome {
    let spec = admitted(subject, |_| ())?;
    let container = TestContainer::make(subject).await?;
    // The number of polls may differ each time, so no number is the last.
    for turns in (1..=TURNS_OF_REPETITION_MAX).cycle().take(REPETITIONS) {
        poll_at_most(
            turns,
            hotcell_engine::fetch_and_create(&*subject.engine, &container.id, &spec),
        )
        .await;
        // As above: time for whatever the dropped call had begun.
        TestContainer::make(subject).await?.end().await?;
        assert_eq!(container.said("echo alive").await?, "alive\n");
    }
    container.end().await
}

pub(super) async fn another_engine_over_the_same_state_finds_the_container(
    subject: &Subject,
) -> Outcome {
    let Some(reopen) = &subject.reopen else {
        claimed(false, "to find containers again");
        return Ok(());
    };
    let container = TestContainer::make(subject).await?;
    let ask = container.sh("echo one; read answer; echo $answer");
    let ask = Command { stdin: true, ..ask };
    let mut live = Live::start(&container.agent, &ask).await?;
    live.until("one").await?;

    let other = reopen().await;
    let found = other.list().await?;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0].id, found[0].phase),
        (&container.id, Phase::Running)
    );
    assert_eq!(found[0].enforced, container.info.enforced);
    let agent = Agent::connect(other.open(&container.id).await?).await?;
    assert_eq!(agent.hello().boot_id, container.agent.hello().boot_id);
    live.move_to(&agent).await?;
    agent.input(&live.exec_id, 0, "two\n".into(), false).await?;
    assert_eq!(live.end().await?.stdout, b"one\ntwo\n");
    container.end().await
}

pub(super) async fn another_engine_over_the_same_state_destroys_the_container(
    subject: &Subject,
) -> Outcome {
    let Some(reopen) = &subject.reopen else {
        claimed(false, "to find containers again");
        return Ok(());
    };
    let container = TestContainer::make(subject).await?;
    let mut live = Live::start(&container.agent, &container.sh("echo ready; sleep 1000")).await?;
    live.until("ready").await?;
    let other = reopen().await;
    let (exited, destroyed) =
        tokio::join!(other.exited(&container.id), other.destroy(&container.id));
    destroyed.context("destroy")?;
    // Whether the container was still known when the wait ended is a race.
    drop(exited);
    expect_lost(live).await;
    expect_nothing_of(subject, &container.id).await
}

/// The connection breaks: a killed agent sends nothing more.
async fn expect_lost(mut live: Live) {
    let lost = live.step().await;
    assert!(matches!(lost, Err(AgentError::Lost)), "{lost:?}");
}

/// Every query about the container fails with `NotFound`.
async fn expect_nothing_of(subject: &Subject, id: &ContainerId) -> Outcome {
    let engine: &Arc<dyn Engine> = &subject.engine;
    expect_not_found(&engine.open(id).await.map(|_| "a stream"));
    expect_not_found(&engine.inspect(id).await);
    expect_not_found(&engine.destroy(id).await);
    expect_not_found(&engine.exited(id).await);
    expect_not_found(&engine.restart(id, &Abandonment::default()).await);
    ensure!(!listed(&**engine).await?.contains(id), "still listed");
    Ok(())
}

async fn listed(engine: &dyn Engine) -> anyhow::Result<BTreeSet<ContainerId>> {
    let all = engine.list().await.context("list")?;
    Ok(all.into_iter().map(|one| one.id).collect())
}

/// Waits until the engine no longer lists it, within the deadline of the case.
async fn until_unlisted(subject: &Subject, id: &ContainerId) -> Outcome {
    while listed(&*subject.engine).await?.contains(id) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

/// Polls a future at most `turns` times, and then drops it unless it is only lent.
async fn poll_at_most<F: Future>(turns: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = turns;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
