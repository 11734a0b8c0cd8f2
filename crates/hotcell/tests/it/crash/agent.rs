//! The agent is killed, from the host: from inside it cannot be.

use hotcell_domain::Phase;

use super::moment::{agent_pid, kill};
use crate::support::{Cell, deadline};

#[tokio::test]
async fn an_agent_that_dies_takes_its_container_along_and_everybody_is_told() {
    let cell = Cell::new().await;
    let exited = cell.engine.exited(&cell.id);
    kill(agent_pid(&cell.id));
    let exited = tokio::time::timeout(deadline(), exited).await;
    exited.expect("the end is noticed").unwrap();
    assert_eq!(cell.inspect().await.phase, Phase::Stopped);
    assert!(cell.agent.stat(b"", false).await.is_err());
    assert!(cell.engine.open(&cell.id).await.is_err());
    let listed = cell.engine.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    cell.remove().await;
}
