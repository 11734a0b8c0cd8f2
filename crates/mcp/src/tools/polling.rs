//! Waits for an exec, then reads its output once memory is reserved for it.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Caller, ExecId};
use hotcell_service::{ExecView, Poll, Service, Waiting};

use super::ToolError;
use crate::Server;
use crate::asking::{Attended, Doing, Ongoing, Work};
use crate::call::Call;

/// Waits for news of an exec. The exec goes on without it.
pub(super) struct ExecWait {
    pub(super) id: ExecId,
    pub(super) poll: Poll,
    /// Until the call that started the exec is answered.
    pub(super) waiting: Option<Waiting>,
    service: Service,
    caller: Caller,
}

impl ExecWait {
    pub(super) fn new(
        server: &Server,
        call: &Call,
        id: ExecId,
        poll: Poll,
        waiting: Option<Waiting>,
    ) -> Self {
        Self {
            id,
            poll,
            waiting,
            service: server.service().clone(),
            caller: call.caller.clone(),
        }
    }
}

impl Work for ExecWait {
    type End = ();

    fn doing(&self) -> Doing {
        let id = self.id.clone();
        Arc::new(move || format!("{id} runs"))
    }

    /// While it waits, it reserves no memory.
    async fn ended(&mut self) -> Result<(), ToolError> {
        let news = self.service.exec_news(&self.caller, &self.id, self.poll);
        Ok(news.await?)
    }
}

/// Waits as the poll asks.
pub(super) async fn wait(
    server: &Server,
    call: &Call,
    exec: ExecWait,
) -> Result<Attended<ExecWait>, ToolError> {
    if exec.poll.wait.is_zero() {
        return Ok(Attended::Ended(exec, ()));
    }
    let ongoing = Ongoing::begin(server, call, exec, call.asking.open());
    ongoing.attend(server, call).await
}

/// Reads the status and the output of an exec, as they are now.
pub(super) async fn read(
    server: &Server,
    id: &ExecId,
    poll: Poll,
    call: &Call,
) -> Result<ExecView, ToolError> {
    call.room(poll.bytes_max).await?;
    let now = Poll {
        wait: Duration::ZERO,
        ..poll
    };
    let service = server.service();
    Ok(service.exec_poll(&call.caller, id, now).await?)
}
