//! Idempotent agent calls about one exec.

use std::time::Duration;

use bytes::Bytes;
use hotcell_agent_client::{Agent, AgentError, AgentRefusal, Winsize};
use hotcell_domain::ExecId;
use tokio::time::Instant;

use super::Signal;
use super::live::LiveExec;
use super::stdin::Written;
use super::table::TableInner;
use crate::ServiceError;
use crate::backoff::Backoff;

/// How long an agent may take to answer, and a process to read its input.
pub(super) const CALL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long an answer may take to arrive after the exec has ended.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);

/// A call to the agent. Each one is idempotent.
pub(super) enum AgentCall<'a> {
    /// Ask how many bytes of stdin the agent has accepted.
    Settle(&'a mut Written),
    /// Write these bytes, then close stdin if the flag is set.
    Put(&'a mut Written, Bytes, bool),
    Resize(Winsize),
    Signal(Signal),
}

impl AgentCall<'_> {
    async fn make(&mut self, agent: &Agent, id: &ExecId) -> Result<(), AgentError> {
        match self {
            Self::Settle(written) => written.settle(agent, id).await,
            Self::Put(written, piece, eof) => written.put(agent, id, piece.clone(), *eof).await,
            Self::Resize(size) => agent.resize(id.as_str(), *size).await,
            Self::Signal(signal) => agent.signal(id.as_str(), signal.number(), true).await,
        }
    }
}

/// Why a call failed.
pub(super) enum CallError {
    Refused(AgentError),
    TooLate,
    Ended,
}

impl CallError {
    /// Converts it to the service's error.
    pub(super) fn into_service(self, step: &'static str) -> ServiceError {
        match self {
            Self::Ended => conflict("the exec has ended"),
            Self::TooLate => ServiceError::Deadline {
                reason: "the container did not answer in time".to_owned(),
            },
            Self::Refused(AgentError::Refused { refusal, message }) => match refusal {
                AgentRefusal::NotFound | AgentRefusal::Conflict { .. } => conflict(message),
                AgentRefusal::InvalidArgument => ServiceError::Invalid { reason: message },
                AgentRefusal::AlreadyExists
                | AgentRefusal::Denied
                | AgentRefusal::Exhausted
                | AgentRefusal::Aborted
                | AgentRefusal::Batch { .. }
                | AgentRefusal::Internal => ServiceError::Internal {
                    step,
                    source: message.into(),
                },
            },
            Self::Refused(error @ AgentError::TooOld { .. }) => ServiceError::agent_too_old(&error),
            Self::Refused(error) => ServiceError::Internal {
                step,
                source: error.into(),
            },
        }
    }
}

impl LiveExec {
    /// Makes an idempotent call, reconnecting as often as needed, until the deadline or until the
    /// exec ends.
    pub(super) async fn call(
        &self,
        table: &TableInner,
        deadline: Instant,
        ask: AgentCall<'_>,
    ) -> Result<(), CallError> {
        let attempts = tokio::time::timeout_at(deadline, self.attempts(table, ask));
        tokio::pin!(attempts);
        tokio::select! {
            biased;
            done = &mut attempts => return done.unwrap_or(Err(CallError::TooLate)),
            _ = self.until_ended() => {}
        }
        // A command that has read its last line may have exited before the agent's answer arrives.
        match tokio::time::timeout(ANSWER_WAIT_MAX, attempts).await {
            Ok(Ok(Ok(()))) => Ok(()),
            _ => Err(CallError::Ended),
        }
    }

    /// Retries until the agent answers. "Not found" is retried too while the exec is live: the
    /// agent is about to start it.
    async fn attempts(&self, table: &TableInner, mut ask: AgentCall<'_>) -> Result<(), CallError> {
        let mut backoff = Backoff::new();
        loop {
            if let Ok(connected) = table.connection.get().await {
                let Err(error) = ask.make(&connected.agent, &self.id).await else {
                    return Ok(());
                };
                table.connection.report(&connected, &error);
                let is_early = error.is_not_found() && !self.status().is_final();
                if error != AgentError::Lost && !is_early {
                    return Err(CallError::Refused(error));
                }
            }
            backoff.wait().await;
        }
    }
}

pub(super) fn conflict(reason: impl Into<String>) -> ServiceError {
    ServiceError::Conflict {
        reason: reason.into(),
        current_etag: None,
    }
}

impl Signal {
    /// The signal number on Linux.
    fn number(self) -> u32 {
        match self {
            Self::Hup => 1,
            Self::Int => 2,
            Self::Kill => 9,
            Self::Usr1 => 10,
            Self::Usr2 => 12,
            Self::Term => 15,
            Self::Winch => 28,
        }
    }
}
