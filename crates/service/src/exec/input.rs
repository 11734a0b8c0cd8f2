//! Input for an exec: standard input, signals, terminal size.

use std::time::Duration;

use hotcell_agent_client::Winsize;
use hotcell_domain::{Caller, ExecId, ExecStatus};
use tokio::time::Instant;

use super::call::{AgentCall, CALL_WAIT_MAX, conflict};
use super::find::FoundExec;
use super::live::LiveExec;
use super::table::TableInner;
use super::{Input, Signal};
use crate::{Action, Inner, Service, ServiceError};

/// How long input waits for a queued exec to start.
const START_WAIT_MAX: Duration = Duration::from_secs(10);

impl Service {
    /// Sends input to a running exec. Either all of it is taken, or the call fails and says how
    /// much was. Input for a queued exec waits briefly for it to start.
    pub async fn exec_input(
        &self,
        caller: &Caller,
        id: &ExecId,
        input: Input,
    ) -> Result<(), ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::ExecInput, id);
        operation.count_bytes(input.data.len());
        operation.note(|arguments| {
            arguments.flag("eof", input.eof);
            if let Some(signal) = input.signal {
                arguments.text("signal", &format!("{signal:?}").to_uppercase());
            }
        });
        operation.run(inner.send_input(caller, id, input)).await
    }
}

impl Inner {
    async fn send_input(
        &self,
        caller: &Caller,
        id: &ExecId,
        input: Input,
    ) -> Result<(), ServiceError> {
        let found = self.environment.find_exec(caller, id).await?;
        let FoundExec::Live(exec) = found else {
            return Err(conflict("the exec has ended"));
        };
        self.used(&exec.container);
        let table = exec.table.upgrade().ok_or_else(ServiceError::stopping)?;
        exec.until_started().await?;
        if let Some((rows, cols)) = input.resize {
            exec.resize(&table, Winsize { rows, cols }).await?;
        }
        if !input.data.is_empty() || input.eof {
            let deadline = Instant::now() + CALL_WAIT_MAX;
            exec.write(&table, input.data, input.eof, deadline).await?;
        }
        if let Some(signal) = input.signal {
            exec.signal(&table, signal).await?;
        }
        Ok(())
    }
}

impl LiveExec {
    /// Waits briefly for a queued exec to start.
    async fn until_started(&self) -> Result<(), ServiceError> {
        let mut progress = self.progress();
        let started = progress.wait_for(|progress| progress.status != ExecStatus::Queued);
        let status = match tokio::time::timeout(START_WAIT_MAX, started).await {
            Ok(Ok(progress)) => progress.status,
            Ok(Err(_)) | Err(_) => ExecStatus::Queued,
        };
        if status.is_final() {
            return Err(conflict("the exec has ended"));
        }
        if status == ExecStatus::Queued {
            return Err(conflict(
                "the exec has not started yet: others run before it; send its input later",
            ));
        }
        Ok(())
    }

    async fn resize(&self, table: &TableInner, size: Winsize) -> Result<(), ServiceError> {
        if !self.command.tty {
            return Err(conflict(
                "the exec has no terminal to resize; start it with tty",
            ));
        }
        let deadline = Instant::now() + CALL_WAIT_MAX;
        let resized = self.call(table, deadline, AgentCall::Resize(size)).await;
        resized.map_err(|error| error.into_service("resize the terminal"))
    }

    async fn signal(&self, table: &TableInner, signal: Signal) -> Result<(), ServiceError> {
        let deadline = Instant::now() + CALL_WAIT_MAX;
        let sent = self.call(table, deadline, AgentCall::Signal(signal)).await;
        sent.map_err(|error| error.into_service("send the signal"))
    }
}
