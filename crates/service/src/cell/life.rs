//! The life of a container, from its making to its end, in one task.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Admitted, ContainerSpec, Phase};
use hotcell_engine::{Container, Engine, EngineError, Progress};
use tokio::sync::{mpsc, oneshot};

use super::make::make;
use super::{Cell, Request, Wish};
use crate::{Inner, ServiceError};

/// From an engine that could not watch a container to the next attempt.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// Owns a container's phase.
pub(crate) struct Life {
    pub(super) inner: Arc<Inner>,
    pub(super) cell: Arc<Cell>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// Who waits for the end.
    pub(super) waiting: Vec<oneshot::Sender<Result<(), ServiceError>>>,
}

/// How a container comes into this server's memory.
#[derive(Debug)]
pub(crate) enum Birth {
    /// It is to be made, and somebody wants to hear how far its image is.
    Made(Box<Admitted<ContainerSpec>>, Progress),
    /// It was ready before it was asked for, and its row says that it runs.
    Warm(Box<Container>),
    /// It runs already.
    Found,
    /// It was to run, and has ended.
    Halted,
    /// Another engine holds it.
    Away,
    /// It was being ended when the last server died, or is of no use.
    Dying(Cause),
}

/// Why a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It could not be made.
    NotMade,
    /// Somebody wants it, or its time is up.
    Wished {
        /// Without grace.
        force: bool,
    },
    /// Its agent ended, or the engine has lost it.
    Vanished,
    /// The engine has nothing of it any more.
    Gone,
    /// Its agent broke the protocol.
    Distrusted,
}

impl Life {
    /// Starts a container's task.
    pub(crate) fn start(
        inner: &Arc<Inner>,
        cell: &Arc<Cell>,
        requests: mpsc::Receiver<Request>,
        birth: Birth,
    ) {
        let life = Self {
            inner: Arc::clone(inner),
            cell: Arc::clone(cell),
            requests,
            waiting: Vec::new(),
        };
        inner.environment.tasks.spawn(life.live(birth));
    }

    async fn live(mut self, birth: Birth) {
        let cause = match birth {
            Birth::Made(spec, progress) => match self.make_if_wanted(&spec, &progress).await {
                Ok(made) => {
                    self.cell.note_made(made);
                    self.inner.sync_soon(&self.cell);
                    self.set_phase(Phase::Running);
                    // Nobody waits for this: a row that still says `Creating` when the next
                    // server finds the container running means the same.
                    self.note_made().await;
                    self.run().await
                }
                Err((cause, failure)) => {
                    let _ = self.cell.failure.set(failure);
                    cause
                }
            },
            Birth::Warm(container) => {
                self.cell.note_made(*container);
                self.inner.sync_soon(&self.cell);
                self.set_phase(Phase::Running);
                self.run().await
            }
            Birth::Found => {
                self.reconnect();
                self.run().await
            }
            Birth::Halted => Cause::Vanished,
            Birth::Away => return self.stay_away().await,
            Birth::Dying(cause) => cause,
        };
        let cause = self.keep(cause).await;
        self.end(cause).await;
    }

    /// Makes it and connects to it, unless somebody wants its end before, or whoever asked
    /// goes away: without a key nobody else can wait for it. On `Err` something may be left.
    async fn make_if_wanted(
        &mut self,
        spec: &Admitted<ContainerSpec>,
        progress: &Progress,
    ) -> Result<Container, (Cause, ServiceError)> {
        let (environment, cell) = (&self.inner.environment, &self.cell);
        let connection = cell.connection();
        tokio::select! {
            biased;
            made = make(environment, cell.id(), spec, progress, &connection) => {
                made.map_err(|failure| (Cause::NotMade, failure.into()))
            }
            () = progress.unwatched(), if cell.row.key.is_none() => {
                Err((Cause::NotMade, not_made("nobody waits for it any more")))
            }
            request = self.requests.recv() => {
                self.waiting.extend(request.map(|request| request.answer));
                let failure = not_made("the container was ended before it was made");
                Err((Cause::Wished { force: true }, failure))
            }
        }
    }

    /// Connects in the background, a bounded number of containers at a time.
    fn reconnect(&self) {
        let (inner, cell) = (Arc::clone(&self.inner), Arc::clone(&self.cell));
        self.inner.environment.tasks.spawn(async move {
            let _turn = inner.reconnecting.acquire().await;
            if let Err(error) = cell.connection().get().await {
                tracing::warn!(container.id = %cell.id(), %error, "a container does not answer");
            }
        });
    }

    /// Refuses whatever anybody wants of it: its engine is not here.
    async fn stay_away(mut self) {
        while let Some(request) = self.requests.recv().await {
            let _ = request.answer.send(Err(self.cell.halted()));
        }
    }

    /// Waits for whatever ends it.
    pub(super) async fn run(&mut self) -> Cause {
        let environment = Arc::clone(&self.inner.environment);
        let cell = Arc::clone(&self.cell);
        let connection = cell.connection();
        tokio::select! {
            biased;
            request = self.requests.recv() => request.map_or(Cause::Vanished, |request| self.take(request)),
            () = exited(&*environment.engine, &cell) => Cause::Vanished,
            _ = connection.distrusted() => Cause::Distrusted,
            () = expired(&self.inner, &cell) => Cause::Wished { force: false },
        }
    }

    /// Takes a request: whoever made it waits for the end now.
    pub(super) fn take(&mut self, request: Request) -> Cause {
        self.waiting.push(request.answer);
        match request.wish {
            Wish::End => Cause::Wished { force: false },
            Wish::ForcedEnd => Cause::Wished { force: true },
            Wish::NoteGone => Cause::Vanished,
        }
    }

    pub(super) fn set_phase(&self, next: Phase) {
        self.cell.set_phase(next);
    }
}

fn not_made(reason: &str) -> ServiceError {
    ServiceError::Unavailable {
        reason: reason.to_owned(),
        source: None,
    }
}

/// Waits until the container's agent has ended, or there is none.
async fn exited(engine: &dyn Engine, cell: &Cell) {
    loop {
        match engine.exited(cell.id()).await {
            Ok(()) | Err(EngineError::NotFound { .. }) => return,
            Err(error) => {
                tracing::warn!(container.id = %cell.id(), %error, "a container is not watched");
                tokio::time::sleep(WATCH_PAUSE).await;
            }
        }
    }
}

/// Waits until its time is up by the clock, which may have been set meanwhile.
async fn expired(inner: &Inner, cell: &Cell) {
    let Some(expires_unix_ms) = cell.row.expires_unix_ms else {
        return std::future::pending().await;
    };
    loop {
        let now_unix_ms = inner.environment.clock.unix_ms();
        match expires_unix_ms.checked_sub(now_unix_ms) {
            None | Some(0) => return,
            Some(left_ms) => tokio::time::sleep(Duration::from_millis(left_ms)).await,
        }
    }
}
