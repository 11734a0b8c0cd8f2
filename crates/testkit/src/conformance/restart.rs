//! Starting a container again.

use std::time::Duration;

use anyhow::Context as _;
use hotcell_agent_client::{AgentError, Variable, WriteOptions};
use hotcell_domain::Phase;

use hotcell_engine::Engine;

use super::cell::{Cell, Live};
use super::{Outcome, Subject, claimed};

/// How often a container is started again in a row.
const TIMES: usize = 3;

pub(super) async fn a_container_that_ended_is_started_again_with_its_files(
    subject: &Subject,
) -> Outcome {
    let cell = Cell::make(subject).await?;
    write(&cell).await?;
    let exited = subject.engine.exited(&cell.id);
    let (exited, told) = tokio::join!(exited, cell.agent.shutdown(Duration::ZERO));
    exited.context("exited")?;
    told.context("shutdown")?;
    let again = again(&*subject.engine, &cell).await?;
    expect_file(&again).await?;
    let listed = subject.engine.list().await?;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].id, listed[0].phase), (&cell.id, Phase::Running));
    again.end().await
}

pub(super) async fn a_running_container_is_started_again_and_its_execs_end(
    subject: &Subject,
) -> Outcome {
    let cell = Cell::make(subject).await?;
    write(&cell).await?;
    let script = "echo ready; trap '' TERM HUP INT; sleep 1000 & while :; do wait; done";
    let mut live = Live::start(&cell.agent, &cell.sh(script)).await?;
    live.until("ready").await?;
    let again = again(&*subject.engine, &cell).await?;
    let lost = live.step().await;
    assert!(matches!(lost, Err(AgentError::Lost)), "{lost:?}");
    assert!(again.agent.list_execs().await?.is_empty());
    expect_file(&again).await?;
    again.end().await
}

pub(super) async fn a_container_is_started_again_and_again(subject: &Subject) -> Outcome {
    let mut cell = Cell::make(subject).await?;
    write(&cell).await?;
    for _ in 0..TIMES {
        cell = again(&*subject.engine, &cell).await?;
        expect_file(&cell).await?;
    }
    // The end of the last one is told, and not that of one before it.
    let exited = subject.engine.exited(&cell.id);
    let (exited, told) = tokio::join!(exited, cell.agent.shutdown(Duration::ZERO));
    exited.context("exited")?;
    told.context("shutdown")?;
    let phase = subject.engine.inspect(&cell.id).await?.phase;
    assert!(matches!(phase, Phase::Stopped | Phase::Failed), "{phase:?}");
    cell.end().await
}

pub(super) async fn another_engine_over_the_same_state_starts_the_container_again(
    subject: &Subject,
) -> Outcome {
    let Some(reopen) = &subject.reopen else {
        claimed(false, "to find containers again");
        return Ok(());
    };
    let cell = Cell::make(subject).await?;
    write(&cell).await?;
    let other = reopen().await;
    let again = again(&*other, &cell).await?;
    expect_file(&again).await?;
    again.end().await
}

/// Starts a container again, which is then as it was made, with another agent.
async fn again<'a>(engine: &dyn Engine, cell: &Cell<'a>) -> anyhow::Result<Cell<'a>> {
    let container = engine.restart(&cell.id).await.context("restart")?;
    assert_eq!((&container.id, container.phase), (&cell.id, Phase::Running));
    assert_eq!(container.enforced, cell.container.enforced);
    assert_eq!(container.lifetime, cell.container.lifetime);
    assert_eq!(container.image_digest, cell.container.image_digest);
    let again = Cell::attach(cell.subject, cell.id.clone(), container).await?;
    assert_ne!(again.agent.hello().boot_id, cell.agent.hello().boot_id);
    assert_eq!(variables(&again), variables(cell));
    Ok(again)
}

/// What the image sets, sorted: gVisor tells it in another order each time.
fn variables(cell: &Cell<'_>) -> Vec<Variable> {
    let mut variables = cell.agent.hello().env.clone();
    variables.sort();
    variables
}

async fn write(cell: &Cell<'_>) -> Outcome {
    let options = WriteOptions::default();
    let written = cell.agent.write_all(b"kept", "before".into(), options);
    written.await?;
    Ok(())
}

async fn expect_file(cell: &Cell<'_>) -> Outcome {
    let said = cell
        .said("cat kept; echo more >> mine; echo ' after'")
        .await?;
    assert_eq!(said, "before after\n");
    Ok(())
}
