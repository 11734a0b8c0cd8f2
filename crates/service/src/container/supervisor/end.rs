//! Ends a container: its execs, its processes, its files, its row, in this order.
//!
//! The row is updated last, so a server that dies midway leaves a row from which the next one
//! continues.

use std::time::Duration;

use hotcell_agent_client::AgentError;
use hotcell_domain::{ExecStatus, Phase};
use hotcell_engine::EngineError;
use hotcell_store::StoreError;

use super::{EndCause, Supervisor};
use crate::ServiceError;
use crate::container::live::{EndMode, EndRequest};

/// How long a shutdown may take beyond its grace period.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(2);

/// Attempts to ask an agent to shut down: the connection may have been lost long ago without anyone
/// noticing.
const SHUTDOWNS_MAX: usize = 2;

/// Delay before the next round after the engine could not remove a container in several attempts.
const DESTROY_AGAIN: Duration = Duration::from_secs(30);

/// Attempts to store the end. If all fail, reconcile stores it.
const NOTES_MAX: u32 = 3;

impl Supervisor {
    /// Ends the container and answers all waiting callers.
    pub(super) async fn end(mut self, cause: EndCause) {
        let status = self.status(cause).await;
        self.enter(cause).await;
        let execs = self.container.execs();
        execs.close(status).await;
        if cause == (EndCause::Requested { force: false }) {
            self.shut_down().await;
        }
        if cause != EndCause::Missing {
            while let Err(error) = self.inner.environment.destroy(self.container.id()).await {
                self.wait_to_retry(cause, error).await;
            }
        }
        execs.finish(status).await;
        self.container.end_egress();
        self.note_end(cause).await;
        self.inner.environment.budget.release(self.container.id());
        self.inner.registry.remove(&self.container);
        self.set_phase(final_phase(cause));
        self.answer();
    }

    /// The final status of its execs.
    pub(super) async fn status(&self, cause: EndCause) -> ExecStatus {
        match cause {
            EndCause::Requested { .. } | EndCause::NotCreated => ExecStatus::Cancelled,
            EndCause::Distrusted | EndCause::Missing => ExecStatus::Lost,
            EndCause::Exited => {
                let inspected = self
                    .inner
                    .environment
                    .engine
                    .inspect(self.container.id())
                    .await;
                let oom_kills = inspected.map_or(0, |container| container.oom_kills);
                self.container.execs().note_oom_kills(oom_kills);
                if oom_kills > 0 {
                    ExecStatus::OomKilled
                } else {
                    ExecStatus::Lost
                }
            }
        }
    }

    /// Sets the phase. Only a requested end is stored: the next server notices by itself that a
    /// container has exited.
    async fn enter(&self, cause: EndCause) {
        match cause {
            EndCause::Requested { .. } => {
                self.set_phase(Phase::Stopping);
                self.note(Phase::Stopping).await;
            }
            EndCause::Exited | EndCause::Missing | EndCause::Distrusted => {
                tracing::warn!(container.id = %self.container.id(), ?cause, "a container failed");
                self.set_phase(Phase::Failed);
            }
            // Callers are answered when everything is removed.
            EndCause::NotCreated => {}
        }
    }

    /// Asks the agent to end all processes; waits for the grace period, or until a caller forces
    /// the end.
    async fn shut_down(&mut self) {
        let grace = self.inner.environment.settings().kill_grace;
        let connection = self.container.connection();
        let shut_down = async {
            for _ in 0..SHUTDOWNS_MAX {
                let Ok(connected) = connection.get().await else {
                    return;
                };
                match connected.agent.shutdown(grace).await {
                    Err(error @ AgentError::Lost) => connection.report(&connected, &error),
                    // Whatever the answer, the engine destroys the container next.
                    Ok(()) | Err(_) => return,
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(grace + SHUTDOWN_MARGIN, shut_down) => {}
            () = self.until_forced() => {}
        }
    }

    async fn until_forced(&mut self) {
        while let Some(request) = self.requests.recv().await {
            if self.take(request) == (EndCause::Requested { force: true }) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Tells waiting callers that the container could not be removed, and waits until the next
    /// attempt is due.
    async fn wait_to_retry(&mut self, cause: EndCause, error: EngineError) {
        tracing::error!(container.id = %self.container.id(), %error, "a container cannot be removed");
        let failure = ServiceError::from(error);
        for answer in self.waiting.drain(..) {
            let _ = answer.send(Err(failure.again()));
        }
        if cause == EndCause::NotCreated {
            self.set_phase(Phase::Failed);
        }
        tokio::select! {
            () = tokio::time::sleep(DESTROY_AGAIN) => {}
            request = self.requests.recv() => {
                if let Some(request) = request {
                    self.take(request);
                }
            }
        }
    }

    /// Stores the end. A container that could not be created releases its key.
    async fn note_end(&self, cause: EndCause) {
        for _ in 0..NOTES_MAX {
            if self.note(final_phase(cause)).await {
                return;
            }
        }
    }

    /// Stores that the container runs, and its image digest.
    pub(super) async fn record_created(&self) {
        let digest = self.container.image_digest().map(str::to_owned);
        let store = &self.inner.environment.store;
        let noted = store.set_container_made(self.container.id().clone(), digest);
        self.is_noted(Phase::Running, noted.await);
    }

    /// Stores the container's phase; false if that failed.
    pub(super) async fn note(&self, phase: Phase) -> bool {
        let environment = &self.inner.environment;
        let id = self.container.id().clone();
        let ended = phase.is_final().then(|| environment.clock.unix_ms());
        let noted = environment.store.set_container_phase(id, phase, ended);
        self.is_noted(phase, noted.await)
    }

    fn is_noted(&self, phase: Phase, noted: Result<(), StoreError>) -> bool {
        match noted {
            Ok(()) => true,
            Err(error) => {
                self.inner.environment.metrics.store_failed();
                tracing::error!(container.id = %self.container.id(), ?phase, %error, "a phase is not noted");
                false
            }
        }
    }

    fn answer(mut self) {
        self.requests.close();
        while let Ok(EndRequest {
            answer,
            mode: EndMode::Graceful | EndMode::Forced | EndMode::LostByEngine,
        }) = self.requests.try_recv()
        {
            self.waiting.push(answer);
        }
        for answer in self.waiting {
            let _ = answer.send(Ok(()));
        }
    }
}

fn final_phase(cause: EndCause) -> Phase {
    match cause {
        EndCause::Requested { .. } => Phase::Stopped,
        EndCause::NotCreated | EndCause::Exited | EndCause::Missing | EndCause::Distrusted => {
            Phase::Failed
        }
    }
}
