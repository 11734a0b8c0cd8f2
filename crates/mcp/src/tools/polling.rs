//! Waits for an exec, then reads its output once memory is reserved for it.

use std::time::Duration;

use hotcell_domain::ExecId;
use hotcell_service::{ExecView, Poll};

use super::ToolError;
use crate::Server;
use crate::call::Call;

/// Polls an exec. While it waits, it reserves no memory.
pub(super) async fn poll(
    server: &Server,
    id: &ExecId,
    poll: Poll,
    call: &Call,
) -> Result<ExecView, ToolError> {
    let service = server.service();
    if !poll.wait.is_zero() {
        let news = service.exec_news(&call.caller, id, poll);
        call.attend(&format!("{id} runs"), news).await??;
    }
    call.room(poll.bytes_max).await?;
    let now = Poll {
        wait: Duration::ZERO,
        ..poll
    };
    Ok(service.exec_poll(&call.caller, id, now).await?)
}
