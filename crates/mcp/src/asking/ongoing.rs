//! The work of a call that may need the user's word: it goes on, whether or not a request waits for
//! it at the moment.
//!
//! ```text
//! tools/call ─▶ begin ─▶ attend ─┬─ the work has ended ─────────────▶ answer
//!                                └─ a form ─▶ suspended ─▶ answer: input required, with a state
//! tools/call with state and input ─▶ resume ─▶ attend ─▶ …
//! ```

use std::sync::Arc;

use hotcell_service::ServiceError;
use rmcp::model::InputRequiredResult;
use tokio::task::JoinError;

use super::rounds::{Repeated, Round};
use super::{Forms, NextRound};
use crate::Server;
use crate::call::Call;
use crate::egress::HostQuestions;
use crate::tools::{Code, ToolError};

/// Tells what work does at the moment.
pub(crate) type Doing = Arc<dyn Fn() -> String + Send + Sync>;

/// What a call waits for. Dropped, it is cancelled.
pub(crate) trait Work: Send + 'static {
    /// What there is when it has ended.
    type End: Send;

    /// Tells what it does at the moment, for people.
    fn doing(&self) -> Doing;

    /// Waits for its end. Dropping the future changes nothing: the next round waits again.
    fn ended(&mut self) -> impl Future<Output = Result<Self::End, ToolError>> + Send;
}

/// Work whose user is asked. Dropped, the work is cancelled and open forms are withdrawn.
pub(crate) struct Ongoing<W> {
    pub(crate) work: W,
    next: NextRound,
    hosts: Option<HostQuestions>,
}

/// How attending to a call ends.
pub(crate) enum Attended<W: Work> {
    /// The work has ended.
    Ended(W, W::End),
    /// The client has to repeat its request with some input.
    Asks(InputRequiredResult),
}

impl<W: Work> Ongoing<W> {
    /// Attends to work whose forms were opened by [`super::Asking::open`]. As long as it goes on,
    /// the user is also asked about the hosts that containers of the caller wait for.
    pub(crate) fn begin(
        server: &Server,
        call: &Call,
        work: W,
        (forms, next): (Forms, NextRound),
    ) -> Self {
        let has_user = forms.has_user();
        let hosts = has_user.then(|| HostQuestions::ask(server.service(), &call.caller, forms));
        Self { work, next, hosts }
    }

    /// The work of a repeated request whose round is answered now, if it is still there and
    /// `is_meant`.
    pub(crate) fn resume(
        server: &Server,
        call: &Call,
        repeated: &Repeated,
        is_meant: impl FnOnce(&W) -> bool,
    ) -> Option<Self> {
        let principal = &call.caller.principal;
        let suspended = server.suspended();
        suspended.resume(principal, repeated, |ongoing: &Self| {
            is_meant(&ongoing.work)
        })
    }

    /// Waits until it ends or asks. If the client cancels meanwhile, the work is cancelled.
    pub(crate) async fn attend(
        mut self,
        server: &Server,
        call: &Call,
    ) -> Result<Attended<W>, ToolError> {
        loop {
            let doing = self.work.doing();
            let next = call.attend_telling(|| doing(), self.next()).await?;
            let round = match next {
                Next::Ended(end) => {
                    if let Some(hosts) = self.hosts {
                        hosts.end().await;
                    }
                    return Ok(Attended::Ended(self.work, end?));
                }
                Next::Asks(round) => round,
            };
            let suspended = server.suspended();
            match suspended.keep(&call.caller.principal, self, round) {
                Ok(input) => return Ok(Attended::Asks(input)),
                Err((refused, round)) => {
                    round.refuse();
                    self = refused;
                }
            }
        }
    }

    async fn next(&mut self) -> Next<W::End> {
        tokio::select! {
            biased;
            end = self.work.ended() => Next::Ended(end),
            round = Round::next(&mut self.next) => Next::Asks(round),
        }
    }
}

enum Next<E> {
    Ended(Result<E, ToolError>),
    Asks(Round),
}

/// The end of work that is a task of its own.
pub(crate) fn joined<T>(ended: Result<Result<T, ServiceError>, JoinError>) -> Result<T, ToolError> {
    match ended {
        Ok(ended) => ended.map_err(ToolError::from),
        Err(_) => Err(ToolError::new(Code::Unavailable, "the server is stopping")),
    }
}
