//! The end of a container: its execs, its processes, its files, its row, in this order.
//!
//! The row is ended last, so a server that dies on the way leaves a row by which the next
//! one goes on.

use std::time::Duration;

use hotcell_agent_client::AgentError;
use hotcell_domain::{ExecStatus, Phase};
use hotcell_engine::EngineError;
use hotcell_store::StoreError;

use super::life::{Cause, Life};
use super::{Request, Wish};
use crate::ServiceError;

/// What a shutdown may take beyond its grace.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(2);

/// Attempts to ask an agent to shut down: a connection may have been lost long ago without
/// anybody noticing.
const SHUTDOWNS_MAX: usize = 2;

/// From an engine that could not remove a container, however often it was asked, to the
/// next round.
const DESTROY_AGAIN: Duration = Duration::from_secs(30);

/// Attempts to note an end. When all fail, reconcile notes it.
const NOTES_MAX: u32 = 3;

impl Life {
    /// Ends the container and answers everybody who waits for it.
    pub(super) async fn end(mut self, cause: Cause) {
        let status = self.status(cause).await;
        self.enter(cause).await;
        let execs = self.cell.execs();
        execs.close(status).await;
        if cause == (Cause::Wished { force: false }) {
            self.shut_down().await;
        }
        if cause != Cause::Gone {
            while let Err(error) = self.inner.environment.destroy(self.cell.id()).await {
                self.put_off(cause, error).await;
            }
        }
        execs.finish(status).await;
        self.note_end(cause).await;
        self.inner.environment.budget.release(self.cell.id());
        self.inner.registry.remove(&self.cell);
        self.set_phase(final_phase(cause));
        self.answer();
    }

    /// What becomes of its execs.
    pub(super) async fn status(&self, cause: Cause) -> ExecStatus {
        match cause {
            Cause::Wished { .. } | Cause::NotMade => ExecStatus::Cancelled,
            Cause::Distrusted | Cause::Gone => ExecStatus::Lost,
            Cause::Vanished => {
                let inspected = self.inner.environment.engine.inspect(self.cell.id()).await;
                match inspected {
                    Ok(container) if container.oom_kills > 0 => ExecStatus::OomKilled,
                    Ok(_) | Err(_) => ExecStatus::Lost,
                }
            }
        }
    }

    /// Tells everybody that it ends. The store is told of a wish only: what ended by itself
    /// is found so again.
    async fn enter(&self, cause: Cause) {
        match cause {
            Cause::Wished { .. } => {
                self.set_phase(Phase::Stopping);
                self.note(Phase::Stopping).await;
            }
            Cause::Vanished | Cause::Gone | Cause::Distrusted => {
                tracing::warn!(container.id = %self.cell.id(), ?cause, "a container failed");
                self.set_phase(Phase::Failed);
            }
            // Whoever waits for it is told when nothing is left of it.
            Cause::NotMade => {}
        }
    }

    /// Asks the agent to end everything, and waits for as long as it may take, or until
    /// somebody is in a hurry.
    async fn shut_down(&mut self) {
        let grace = self.inner.environment.settings.kill_grace;
        let connection = self.cell.connection();
        let shut_down = async {
            for _ in 0..SHUTDOWNS_MAX {
                let Ok(connected) = connection.get().await else {
                    return;
                };
                match connected.agent.shutdown(grace).await {
                    Err(error @ AgentError::Lost) => connection.report(&connected, &error),
                    // Whatever else it answers, the container is destroyed next.
                    Ok(()) | Err(_) => return,
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(grace + SHUTDOWN_MARGIN, shut_down) => {}
            () = self.until_hurry() => {}
        }
    }

    async fn until_hurry(&mut self) {
        while let Some(request) = self.requests.recv().await {
            if self.take(request) == (Cause::Wished { force: true }) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Tells those who wait that it is not gone, and waits until it is time to try again.
    async fn put_off(&mut self, cause: Cause, error: EngineError) {
        tracing::error!(container.id = %self.cell.id(), %error, "a container cannot be removed");
        let failure = ServiceError::from(error);
        for answer in self.waiting.drain(..) {
            let _ = answer.send(Err(failure.again()));
        }
        if cause == Cause::NotMade {
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

    /// Notes the end; one that could not be made leaves its key to whoever tries again.
    async fn note_end(&self, cause: Cause) {
        for _ in 0..NOTES_MAX {
            if self.note(final_phase(cause)).await {
                return;
            }
        }
    }

    /// Tells the store that the container runs, and of what.
    pub(super) async fn note_made(&self) {
        let digest = self.cell.image_digest().map(str::to_owned);
        let store = &self.inner.environment.store;
        let noted = store.set_container_made(self.cell.id().clone(), digest);
        self.is_noted(Phase::Running, noted.await);
    }

    /// Tells the store where the container is in its life; false if it does not know now.
    pub(super) async fn note(&self, phase: Phase) -> bool {
        let environment = &self.inner.environment;
        let id = self.cell.id().clone();
        let ended = phase.is_final().then(|| environment.clock.unix_ms());
        let noted = environment.store.set_container_phase(id, phase, ended);
        self.is_noted(phase, noted.await)
    }

    fn is_noted(&self, phase: Phase, noted: Result<(), StoreError>) -> bool {
        match noted {
            Ok(()) => true,
            Err(error) => {
                self.inner.environment.metrics.store_failed();
                tracing::error!(container.id = %self.cell.id(), ?phase, %error, "a phase is not noted");
                false
            }
        }
    }

    fn answer(mut self) {
        self.requests.close();
        while let Ok(Request {
            answer,
            wish: Wish::End | Wish::ForcedEnd | Wish::NoteGone,
        }) = self.requests.try_recv()
        {
            self.waiting.push(answer);
        }
        for answer in self.waiting {
            let _ = answer.send(Ok(()));
        }
    }
}

fn final_phase(cause: Cause) -> Phase {
    match cause {
        Cause::Wished { .. } => Phase::Stopped,
        Cause::NotMade | Cause::Vanished | Cause::Gone | Cause::Distrusted => Phase::Failed,
    }
}
