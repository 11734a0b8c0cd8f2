//! Making, finding and ending containers.

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

use hotcell_engine::{Engine, Pull};

use super::cell::{Cell, Live, admitted, expect_not_found, new_id};
use super::{Outcome, Subject, claimed};

/// How many containers are made at once.
const AT_ONCE: usize = 20;

/// A create that is dropped later than after so many turns has come to its end.
const TURNS_MAX: usize = 64;

/// Repetitions of a create that are dropped, and after how many turns at most.
const REPETITIONS: usize = 12;
const TURNS_OF_REPETITION_MAX: usize = 3;

/// Between two looks at what changes by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

pub(super) async fn a_new_container_says_hello(subject: &Subject) -> Outcome {
    let cell = Cell::make(subject).await?;
    let hello = cell.agent.hello();
    assert!(hello.root.starts_with('/'));
    assert!(!hello.version.is_empty());
    assert_ne!(hello.boot_id, [0; 16]);
    assert_eq!(cell.said("echo hi").await?, "hi\n");
    cell.end().await
}

pub(super) async fn creating_twice_is_one_container(subject: &Subject) -> Outcome {
    let first = Cell::make(subject).await?;
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
    // Whoever is told that it is made can use it, also the one who came second.
    let create = || async {
        let container = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec)
            .await
            .context("create")?;
        assert_eq!((&container.id, container.phase), (&id, Phase::Running));
        let cell = Cell::attach(subject, id.clone(), container).await?;
        anyhow::Ok(cell.agent.hello().boot_id)
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
    let cell = Cell::make(subject).await?;
    assert_eq!(cell.container.id, cell.id);
    assert_eq!(cell.container.phase, Phase::Running);
    let inspected = subject.engine.inspect(&cell.id).await?;
    assert_eq!(inspected.id, cell.id);
    assert_eq!(inspected.phase, Phase::Running);
    assert_eq!(inspected.enforced, cell.container.enforced);
    assert_eq!(inspected.oom_kills, 0);
    // By this a container of another image than its name stands for now is told.
    let spec = admitted(subject, |_| ())?;
    let image = subject.engine.fetch_image(&spec, Pull::Never).await?;
    let image_id = image.id().map(str::to_owned);
    assert_eq!(cell.container.image_id, image_id);
    assert_eq!(inspected.image_id, image_id);
    let all = subject.engine.list().await?;
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].id, all[0].phase), (&cell.id, Phase::Running));
    assert_eq!(all[0].image_id, image_id);
    cell.end().await
}

pub(super) async fn a_destroyed_container_is_not_found(subject: &Subject) -> Outcome {
    let cell = Cell::make(subject).await?;
    let id = cell.id.clone();
    subject.engine.sync(std::slice::from_ref(&id)).await?;
    cell.end().await?;
    // Whoever brings it to the disk may come too late.
    subject.engine.sync(std::slice::from_ref(&id)).await?;
    expect_nothing_of(subject, &id).await
}

pub(super) async fn what_was_never_made_is_not_found(subject: &Subject) -> Outcome {
    expect_nothing_of(subject, &new_id()).await
}

pub(super) async fn destroy_ends_running_execs(subject: &Subject) -> Outcome {
    let cell = Cell::make(subject).await?;
    let script = "echo ready; trap '' TERM HUP INT; sleep 1000 & while :; do wait; done";
    let mut live = Live::start(&cell.agent, &cell.sh(script)).await?;
    live.until("ready").await?;
    cell.end().await?;
    expect_lost(live).await;
    Ok(())
}

pub(super) async fn two_streams_work_at_once(subject: &Subject) -> Outcome {
    let cell = Cell::make(subject).await?;
    let other = cell.connect().await?;
    assert_eq!(other.hello(), cell.agent.hello());
    let ask = cell.sh("echo one; read answer; echo $answer");
    let ask = Command { stdin: true, ..ask };
    let mut first = Live::start(&cell.agent, &ask).await?;
    first.until("one").await?;
    let second = Live::start(&other, &cell.sh("echo two")).await?;
    assert_eq!(second.end().await?.stdout, b"two\n");
    // What one stream started, the other can talk to; closing it hurts nobody.
    other
        .input(&first.exec_id, 0, "three\n".into(), true)
        .await?;
    drop(other);
    assert_eq!(first.end().await?.stdout, b"one\nthree\n");
    cell.end().await
}

pub(super) async fn containers_share_no_files(subject: &Subject) -> Outcome {
    let (one, two) = (Cell::make(subject).await?, Cell::make(subject).await?);
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
    let cell = Cell::make(subject).await?;
    let mut live = Live::start(&cell.agent, &cell.sh("echo ready; sleep 1000")).await?;
    live.until("ready").await?;
    let exited = subject.engine.exited(&cell.id);
    let (exited, told) = tokio::join!(exited, cell.agent.shutdown(Duration::from_millis(100)));
    exited.context("exited")?;
    told.context("shutdown")?;
    let phase = subject.engine.inspect(&cell.id).await?.phase;
    assert!(matches!(phase, Phase::Stopped | Phase::Failed), "{phase:?}");
    let listed = subject.engine.list().await?;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].phase, phase);
    let reached = match subject.engine.open(&cell.id).await {
        Ok(stream) => Agent::connect(stream).await.is_ok(),
        Err(_) => false,
    };
    assert!(!reached, "an agent still answers");
    let id = cell.id.clone();
    cell.end().await?;
    expect_nothing_of(subject, &id).await
}

pub(super) async fn waiting_for_the_end_returns_on_destroy(subject: &Subject) -> Outcome {
    let cell = Cell::make(subject).await?;
    let exited = subject.engine.exited(&cell.id);
    let mut exited = pin!(exited);
    let early = poll_fn(|cx| Poll::Ready(exited.as_mut().poll(cx).is_ready())).await;
    assert!(!early, "it has not exited yet");
    // The wait ends either way; whether the container is still known is a race.
    let (_, destroyed) = tokio::join!(exited, subject.engine.destroy(&cell.id));
    destroyed.context("destroy")
}

pub(super) async fn twenty_containers_are_made_at_once(subject: &Subject) -> Outcome {
    let cells = try_join_all((0..AT_ONCE).map(|_| Cell::make(subject))).await?;
    let made: BTreeSet<_> = cells.iter().map(|cell| cell.id.clone()).collect();
    assert_eq!(listed(&*subject.engine).await?, made);
    let said = join_all(cells.iter().map(|cell| cell.said("echo $((6 * 7))"))).await;
    for words in said {
        assert_eq!(words?, "42\n");
    }
    let ended = join_all(cells.into_iter().map(Cell::end)).await;
    ended.into_iter().collect()
}

pub(super) async fn a_dropped_create_leaves_nothing(subject: &Subject) -> Outcome {
    let spec = admitted(subject, |_| ())?;
    for turns in 0..TURNS_MAX {
        let id = new_id();
        let create = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec);
        if let Some(made) = drop_after(turns, create).await {
            made.context("create")?;
            subject.engine.destroy(&id).await?;
            break;
        }
        until_unlisted(subject, &id).await?;
        // Whatever the dropped create had under way has been overtaken by a whole
        // other container before the second look.
        Cell::make(subject).await?.end().await?;
        until_unlisted(subject, &id).await?;
        expect_not_found(&subject.engine.inspect(&id).await);
    }
    Ok(())
}

pub(super) async fn a_dropped_create_can_be_repeated(subject: &Subject) -> Outcome {
    let spec = admitted(subject, |_| ())?;
    for turns in 1..TURNS_MAX {
        let id = new_id();
        let dropped = drop_after(
            turns,
            hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec),
        )
        .await;
        let container = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec).await?;
        let cell = Cell::attach(subject, id, container).await?;
        assert_eq!(cell.said("echo hi").await?, "hi\n");
        assert_eq!(listed(&*subject.engine).await?.len(), 1);
        cell.end().await?;
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
    let cell = Cell::make(subject).await?;
    // How many turns it takes may differ each time, so no number is the last.
    for turns in (1..=TURNS_OF_REPETITION_MAX).cycle().take(REPETITIONS) {
        drop_after(
            turns,
            hotcell_engine::fetch_and_create(&*subject.engine, &cell.id, &spec),
        )
        .await;
        // As above: time for whatever the dropped call had under way.
        Cell::make(subject).await?.end().await?;
        assert_eq!(cell.said("echo alive").await?, "alive\n");
    }
    cell.end().await
}

pub(super) async fn another_engine_over_the_same_state_finds_the_container(
    subject: &Subject,
) -> Outcome {
    let Some(reopen) = &subject.reopen else {
        claimed(false, "to find containers again");
        return Ok(());
    };
    let cell = Cell::make(subject).await?;
    let ask = cell.sh("echo one; read answer; echo $answer");
    let ask = Command { stdin: true, ..ask };
    let mut live = Live::start(&cell.agent, &ask).await?;
    live.until("one").await?;

    let other = reopen().await;
    let found = other.list().await?;
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].id, found[0].phase), (&cell.id, Phase::Running));
    assert_eq!(found[0].enforced, cell.container.enforced);
    let agent = Agent::connect(other.open(&cell.id).await?).await?;
    assert_eq!(agent.hello().boot_id, cell.agent.hello().boot_id);
    live.move_to(&agent).await?;
    agent.input(&live.exec_id, 0, "two\n".into(), false).await?;
    assert_eq!(live.end().await?.stdout, b"one\ntwo\n");
    cell.end().await
}

pub(super) async fn another_engine_over_the_same_state_destroys_the_container(
    subject: &Subject,
) -> Outcome {
    let Some(reopen) = &subject.reopen else {
        claimed(false, "to find containers again");
        return Ok(());
    };
    let cell = Cell::make(subject).await?;
    let mut live = Live::start(&cell.agent, &cell.sh("echo ready; sleep 1000")).await?;
    live.until("ready").await?;
    let other = reopen().await;
    let (exited, destroyed) = tokio::join!(other.exited(&cell.id), other.destroy(&cell.id));
    destroyed.context("destroy")?;
    // Whether the container was still known when the wait ended is a race.
    drop(exited);
    expect_lost(live).await;
    expect_nothing_of(subject, &cell.id).await
}

/// The connection breaks; an agent that is killed says no last word.
async fn expect_lost(mut live: Live) {
    let lost = live.step().await;
    assert!(matches!(lost, Err(AgentError::Lost)), "{lost:?}");
}

/// Every question about the container is answered with `NotFound`.
async fn expect_nothing_of(subject: &Subject, id: &ContainerId) -> Outcome {
    let engine: &Arc<dyn Engine> = &subject.engine;
    expect_not_found(&engine.open(id).await.map(|_| "a stream"));
    expect_not_found(&engine.inspect(id).await);
    expect_not_found(&engine.destroy(id).await);
    expect_not_found(&engine.exited(id).await);
    expect_not_found(&engine.restart(id).await);
    ensure!(!listed(&**engine).await?.contains(id), "still listed");
    Ok(())
}

async fn listed(engine: &dyn Engine) -> anyhow::Result<BTreeSet<ContainerId>> {
    let all = engine.list().await.context("list")?;
    Ok(all.into_iter().map(|container| container.id).collect())
}

/// Waits until the engine no longer lists it; the case's deadline ends the wait.
async fn until_unlisted(subject: &Subject, id: &ContainerId) -> Outcome {
    while listed(&*subject.engine).await?.contains(id) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

/// Polls a future at most `turns` times and then drops it.
async fn drop_after<F: Future>(turns: usize, future: F) -> Option<F::Output> {
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
