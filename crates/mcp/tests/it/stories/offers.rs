//! What the server announces, and what it answers to anything else.

use rmcp::ServiceError;
use rmcp::model::ErrorCode;

use crate::world::World;

/// A client that sets a log level would wait for messages that never come.
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
