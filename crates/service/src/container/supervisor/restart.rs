//! Restarts a persistent container that ended by itself: its engine or host was restarted, or its
//! agent died. Only a request removes its files.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::Phase;
use hotcell_engine::{Abandonment, Container, EngineError, error_chain};
use tokio::time::Instant;

use super::create::{CreateError, restart};
use super::{EndCause, Supervisor};
use crate::backoff::Backoff;

/// Restarts in close succession after which the container is left halted.
const STARTS_MAX: u32 = 5;

/// A container that ran for this long is considered stable, and its restarts are counted anew.
const LASTING: Duration = Duration::from_mins(10);

/// Delays between two restarts in close succession.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// Counts the recent restarts of a container.
struct RestartAttempts {
    count: u32,
    last: Option<Instant>,
    pause: Backoff,
}

impl Supervisor {
    /// Restarts a container whenever it ends by itself; returns why it finally ends.
    pub(super) async fn keep(&mut self, mut cause: EndCause) -> EndCause {
        let mut starts = RestartAttempts::new();
        while self.container.row.is_persistent
            && matches!(cause, EndCause::Exited | EndCause::Distrusted)
        {
            self.note_halt(cause).await;
            cause = match self.start_again(&mut starts).await {
                Ok(()) => self.run().await,
                Err(cause) => cause,
            };
        }
        cause
    }

    /// Ends its execs as lost; new requests wait for the restart.
    async fn note_halt(&mut self, cause: EndCause) {
        tracing::warn!(container.id = %self.container.id(), ?cause, "a container ended by itself");
        let status = self.status(cause).await;
        self.set_phase(Phase::Creating);
        self.container.execs().finish(status).await;
        self.container.end_egress();
        self.container.renew(&self.inner.environment);
    }

    /// Restarts it, in several attempts. `Err` says why it must end instead.
    async fn start_again(&mut self, starts: &mut RestartAttempts) -> Result<(), EndCause> {
        while starts.may_begin() {
            let (inner, container) = (Arc::clone(&self.inner), Arc::clone(&self.container));
            let abandonment = Abandonment::default();
            let attempt = async {
                starts.wait().await;
                // The phase is `Halted` while it waits for an attempt.
                container.set_phase(Phase::Creating);
                let connection = container.connection();
                let (environment, id) = (&inner.environment, container.id());
                restart(environment, id, &connection, &abandonment).await
            };
            let started = tokio::select! {
                biased;
                request = self.requests.recv() => {
                    abandonment.abandon();
                    return Err(request.map_or(EndCause::Missing, |request| self.take(request)));
                }
                started = attempt => started,
            };
            match started {
                Ok(info) => {
                    self.note_start(info);
                    return Ok(());
                }
                Err(CreateError::Engine(EngineError::NotFound { .. })) => {
                    return Err(EndCause::Missing);
                }
                Err(error) => self.note_failure(starts, &error),
            }
        }
        Err(self.halt().await)
    }

    fn note_start(&mut self, info: Container) {
        tracing::info!(container.id = %self.container.id(), "a container was started again");
        self.container.record_created(info);
        self.container.start_egress(&self.inner.environment);
        self.set_phase(Phase::Running);
        self.tell_all();
    }

    fn note_failure(&mut self, starts: &mut RestartAttempts, error: &CreateError) {
        let cause = error_chain(error);
        tracing::warn!(container.id = %self.container.id(), cause, "a container was not started again");
        self.set_phase(Phase::Halted);
        self.tell_all();
        if matches!(error, CreateError::Engine(EngineError::Unavailable { .. })) {
            starts.pardon();
        }
    }

    /// Leaves it halted, with its files, until it is asked to end; returns that request's cause.
    async fn halt(&mut self) -> EndCause {
        tracing::error!(
            container.id = %self.container.id(),
            "a container does not last; its files are kept until it is killed, and the next server starts it again"
        );
        self.set_phase(Phase::Halted);
        self.tell_all();
        let request = self.requests.recv().await;
        match request.map(|request| self.take(request)) {
            // The engine has lost what was left of it.
            None | Some(EndCause::Exited) => EndCause::Missing,
            Some(cause) => cause,
        }
    }

    /// Answers callers that reported it as gone: it has been dealt with.
    fn tell_all(&mut self) {
        for answer in self.waiting.drain(..) {
            let _ = answer.send(Ok(()));
        }
    }
}

impl RestartAttempts {
    fn new() -> Self {
        Self {
            count: 0,
            last: None,
            pause: Backoff::between(PAUSE_FIRST, PAUSE_LONGEST),
        }
    }

    /// Counts an attempt; false if there were too many.
    fn may_begin(&mut self) -> bool {
        if self.last.is_some_and(|last| last.elapsed() >= LASTING) {
            *self = Self::new();
        }
        self.count += 1;
        self.count <= STARTS_MAX
    }

    /// Waits before every attempt but the first.
    async fn wait(&mut self) {
        if self.last.is_some() {
            self.pause.wait().await;
        }
        self.last = Some(Instant::now());
    }

    /// Does not count the last attempt: the engine was unavailable.
    fn pardon(&mut self) {
        self.count -= 1;
    }
}
