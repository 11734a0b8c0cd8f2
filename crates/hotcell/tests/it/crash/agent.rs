//! The agent is killed, from the host: from inside it cannot be.

use hotcell_domain::Phase;

use super::moment::{agent_pid, kill};
use crate::support::{TestContainer, deadline};

#[tokio::test]
async fn an_agent_that_dies_takes_its_container_along_and_everybody_is_told() {
    let container = TestContainer::new().await;
    let exited = container.engine.exited(&container.id);
    kill(agent_pid(&container.id));
    let exited = tokio::time::timeout(deadline(), exited).await;
    exited.expect("the end is noticed").unwrap();
    assert_eq!(container.inspect().await.phase, Phase::Stopped);
    assert!(container.agent.stat(b"", false).await.is_err());
    let refused = async {
        // A process that another test starts may have the agent's listener open until it executes.
        while container.engine.open(&container.id).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(deadline(), refused).await;
    refused.expect("nobody listens for a dead agent");
    let listed = container.engine.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    container.remove().await;
}
