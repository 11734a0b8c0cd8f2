//! What the server says it has, and what it answers when asked for anything else.

use rmcp::ServiceError;
use rmcp::model::ErrorCode;

use crate::world::World;

/// Clients that are asked to show a log would wait for messages that never come.
#[tokio::test]
#[expect(deprecated, reason = "clients of older protocols may ask")]
async fn a_server_that_sends_no_log_messages_takes_no_level_for_them() {
    use rmcp::model::{LoggingLevel, SetLevelRequestParams};

    let world = World::new().await;
    let client = world.client().await;
    let offered = client.peer_info().unwrap().capabilities.clone();
    assert_eq!(offered.logging, None);
    let asked = client.set_level(SetLevelRequestParams::new(LoggingLevel::Debug));
    let Err(ServiceError::McpError(error)) = asked.await else {
        panic!("a level was taken");
    };
    assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND);
}
