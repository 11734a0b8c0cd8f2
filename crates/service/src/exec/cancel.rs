//! Cancels an exec.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Caller, ExecId, ExecStatus};

use super::find::FoundExec;
use super::live::LiveExec;
use crate::{Action, Inner, Service, ServiceError};

/// What ending an exec may take beyond its grace period.
const CANCEL_MARGIN: Duration = Duration::from_secs(10);

impl Service {
    /// Ends an exec with all its processes; returns its status. An exec that has already ended is
    /// unchanged. Dropping the future does not undo it.
    pub async fn exec_cancel(
        &self,
        caller: &Caller,
        id: &ExecId,
    ) -> Result<ExecStatus, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::ExecCancel, id);
        operation.run(inner.cancel_exec(caller, id)).await
    }
}

impl Inner {
    /// The same without waiting for the end.
    pub(crate) async fn begin_cancel(
        &self,
        caller: &Caller,
        id: &ExecId,
    ) -> Result<(), ServiceError> {
        if let FoundExec::Live(exec) = self.environment.find_exec(caller, id).await? {
            end(&exec);
        }
        Ok(())
    }

    async fn cancel_exec(&self, caller: &Caller, id: &ExecId) -> Result<ExecStatus, ServiceError> {
        let environment = &self.environment;
        let exec = match environment.find_exec(caller, id).await? {
            FoundExec::Live(exec) => exec,
            FoundExec::Ended(_, end) => return Ok(end.status),
        };
        self.used(&exec.container);
        end(&exec);
        let timeout = environment.settings().kill_grace + CANCEL_MARGIN;
        let ended = tokio::time::timeout(timeout, exec.until_ended()).await;
        Ok(ended.unwrap_or_else(|_| exec.status()))
    }
}

/// Ends an exec: at once if it is queued, else through its follower.
fn end(exec: &Arc<LiveExec>) {
    exec.cancel();
    if let Some(table) = exec.table.upgrade()
        && let Some(exec) = table.remove_queued(&exec.id)
    {
        table.end_unstarted(&exec);
    }
}
