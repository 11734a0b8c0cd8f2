//! Restarting a container.

use std::time::Duration;

use anyhow::Context as _;
use hotcell_agent_client::{AgentError, Variable, WriteOptions};
use hotcell_domain::Phase;

use hotcell_engine::{Abandonment, Engine};

use super::container::{Live, TestContainer};
use super::{Outcome, Subject, claimed};

/// Restarts in a row.
const TIMES: usize = 3;

pub(super) async fn a_container_that_ended_is_started_again_with_its_files(
    subject: &Subject,
) -> Outcome {
    let container = TestContainer::make(subject).await?;
    write(&container).await?;
    let exited = subject.engine.exited(&container.id);
    let (exited, told) = tokio::join!(exited, container.agent.shutdown(Duration::ZERO));
    exited.context("exited")?;
    told.context("shutdown")?;
    let again = again(&*subject.engine, &container).await?;
    expect_file(&again).await?;
    let listed = subject.engine.list().await?;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0].id, listed[0].phase),
        (&container.id, Phase::Running)
    );
    again.end().await
}

pub(super) async fn a_running_container_is_started_again_and_its_execs_end(
    subject: &Subject,
) -> Outcome {
    let container = TestContainer::make(subject).await?;
    write(&container).await?;
    let script = "echo ready; trap '' TERM HUP INT; sleep 1000 & while :; do wait; done";
    let mut live = Live::start(&container.agent, &container.sh(script)).await?;
    live.until("ready").await?;
    let again = again(&*subject.engine, &container).await?;
    let lost = live.step().await;
    assert!(matches!(lost, Err(AgentError::Lost)), "{lost:?}");
    assert!(again.agent.list_execs().await?.is_empty());
    expect_file(&again).await?;
    again.end().await
}

pub(super) async fn a_container_is_started_again_and_again(subject: &Subject) -> Outcome {
    let mut container = TestContainer::make(subject).await?;
    write(&container).await?;
    for _ in 0..TIMES {
        container = again(&*subject.engine, &container).await?;
        expect_file(&container).await?;
    }
    // It must report the end of the latest agent, not of an earlier one.
    let exited = subject.engine.exited(&container.id);
    let (exited, told) = tokio::join!(exited, container.agent.shutdown(Duration::ZERO));
    exited.context("exited")?;
    told.context("shutdown")?;
    let phase = subject.engine.inspect(&container.id).await?.phase;
    assert!(matches!(phase, Phase::Stopped | Phase::Failed), "{phase:?}");
    container.end().await
}

pub(super) async fn another_engine_over_the_same_state_starts_the_container_again(
    subject: &Subject,
) -> Outcome {
    let Some(reopen) = &subject.reopen else {
        claimed(false, "to find containers again");
        return Ok(());
    };
    let container = TestContainer::make(subject).await?;
    write(&container).await?;
    let other = reopen().await;
    let again = again(&*other, &container).await?;
    expect_file(&again).await?;
    again.end().await
}

/// Restarts a container; it must be unchanged, with a new agent.
async fn again<'a>(
    engine: &dyn Engine,
    container: &TestContainer<'a>,
) -> anyhow::Result<TestContainer<'a>> {
    let stays = Abandonment::default();
    let restarted = engine.restart(&container.id, &stays).await;
    let restarted = restarted.context("restart")?;
    assert_eq!(
        (&restarted.id, restarted.phase),
        (&container.id, Phase::Running)
    );
    assert_eq!(restarted.enforced, container.info.enforced);
    assert_eq!(restarted.lifetime, container.info.lifetime);
    assert_eq!(restarted.image_digest, container.info.image_digest);
    let again = TestContainer::attach(container.subject, container.id.clone(), restarted).await?;
    assert_ne!(again.agent.hello().boot_id, container.agent.hello().boot_id);
    assert_eq!(variables(&again), variables(container));
    Ok(again)
}

/// The image's variables, sorted: gVisor returns them in another order each time.
fn variables(container: &TestContainer<'_>) -> Vec<Variable> {
    let mut variables = container.agent.hello().env.clone();
    variables.sort();
    variables
}

async fn write(container: &TestContainer<'_>) -> Outcome {
    let options = WriteOptions::default();
    let written = container.agent.write_all(b"kept", "before".into(), options);
    written.await?;
    Ok(())
}

async fn expect_file(container: &TestContainer<'_>) -> Outcome {
    let said = container
        .said("cat kept; echo more >> mine; echo ' after'")
        .await?;
    assert_eq!(said, "before after\n");
    Ok(())
}
