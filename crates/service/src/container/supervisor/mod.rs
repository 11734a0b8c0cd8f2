//! One task per container: creates it, watches it, restarts it, ends it. It alone changes the
//! container's phase.

mod create;
mod end;
mod restart;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Admitted, ContainerSpec, Phase};
use hotcell_engine::{Container, Engine, EngineError, Progress};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub(crate) use self::create::CreateError;
pub(crate) use self::create::create;
use super::live::{EndMode, EndRequest, LiveContainer};
use crate::{Abandonment, Inner, ServiceError, trace};

/// Delay before the next attempt when the engine could not watch a container.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// How long an engine may take to undo an abandoned creation.
const UNDO_TIMEOUT: Duration = Duration::from_secs(10);

/// Owns a container's phase and serves requests to end it.
pub(crate) struct Supervisor {
    pub(super) inner: Arc<Inner>,
    pub(super) container: Arc<LiveContainer>,
    pub(super) requests: mpsc::Receiver<EndRequest>,
    /// Callers that wait for the end.
    pub(super) waiting: Vec<oneshot::Sender<Result<(), ServiceError>>>,
    /// Whether the caller went away before it was answered.
    abandonment: Abandonment,
    /// Read when the supervisor starts, so that it does not matter when it is first scheduled.
    ttl_ends: Option<Instant>,
}

/// The state of a container when its supervisor starts.
#[derive(Debug)]
pub(crate) enum Origin {
    /// It must be created.
    New(Box<Creation>),
    /// It comes from the warm pool, and its row already says `Running`.
    Warm(Box<Container>, Abandonment),
    /// It runs already.
    Found,
    /// It should run, but has exited.
    Halted,
    /// Another engine runs it.
    OtherEngine,
    /// It was ending when the last server died, or it cannot be used.
    Ending(EndCause),
}

/// The spec of a container to create, and the caller that waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Creation {
    pub(crate) spec: Admitted<ContainerSpec>,
    pub(crate) progress: Progress,
    pub(crate) abandonment: Abandonment,
}

/// Why a container ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// It could not be created.
    NotCreated,
    /// A caller asked for it, or its TTL is over.
    Requested {
        /// Without a grace period.
        force: bool,
    },
    /// Its agent exited, or the engine has lost it.
    Exited,
    /// The engine no longer has anything of it.
    Missing,
    /// Its agent violated the protocol.
    Distrusted,
}

impl Supervisor {
    /// Starts a container's supervisor.
    pub(crate) fn start(
        inner: &Arc<Inner>,
        container: &Arc<LiveContainer>,
        requests: mpsc::Receiver<EndRequest>,
        origin: Origin,
    ) {
        let supervisor = Self {
            inner: Arc::clone(inner),
            container: Arc::clone(container),
            requests,
            waiting: Vec::new(),
            abandonment: Abandonment::default(),
            ttl_ends: ttl_ends(inner, container),
        };
        let work = trace::carried(supervisor.supervise(origin));
        inner.environment.tasks.spawn(work);
    }

    async fn supervise(mut self, origin: Origin) {
        let cause = match origin {
            Origin::New(creation) => match self.create_unless_ended(&creation).await {
                Ok(made) => {
                    self.abandonment = creation.abandonment;
                    self.container.record_created(made);
                    self.inner.sync_soon(&self.container);
                    self.container.start_egress(&self.inner.environment);
                    self.set_phase(Phase::Running);
                    // Not waited for: if the next server finds the container running while its row
                    // says `Creating`, it comes to the same result.
                    self.record_created().await;
                    self.run().await
                }
                Err((cause, failure)) => {
                    let _ = self.container.failure.set(failure);
                    cause
                }
            },
            Origin::Warm(info, abandonment) => {
                self.abandonment = abandonment;
                self.container.record_created(*info);
                self.inner.sync_soon(&self.container);
                self.container.start_egress(&self.inner.environment);
                self.set_phase(Phase::Running);
                self.run().await
            }
            Origin::Found => {
                self.reconnect();
                self.container.start_egress(&self.inner.environment);
                self.run().await
            }
            Origin::Halted => EndCause::Exited,
            Origin::OtherEngine => return self.refuse_requests().await,
            Origin::Ending(cause) => cause,
        };
        let cause = self.keep(cause).await;
        self.end(cause).await;
    }

    /// Creates it and connects to it. If the request is abandoned, or a request to end it arrives,
    /// the engine is told and undoes what it began. On `Err` leftovers may exist.
    async fn create_unless_ended(
        &mut self,
        creation: &Creation,
    ) -> Result<Container, (EndCause, ServiceError)> {
        let (environment, container) = (&self.inner.environment, &self.container);
        let connection = container.connection();
        let creation = Creation {
            abandonment: creation.abandonment.part(),
            ..creation.clone()
        };
        let mut creating = pin!(create(environment, container.id(), &creation, &connection));
        let request = tokio::select! {
            biased;
            made = until_undone(&mut creating, &creation.abandonment) => {
                return made.map_err(|failure| (EndCause::NotCreated, failure.into()));
            }
            request = self.requests.recv() => request,
        };
        creation.abandonment.abandon();
        let _ = until_undone(&mut creating, &creation.abandonment).await;
        self.waiting.extend(request.map(|request| request.answer));
        let failure = ServiceError::Unavailable {
            reason: "the container was ended before it was made".to_owned(),
            source: None,
        };
        Err((EndCause::Requested { force: true }, failure))
    }

    /// Connects in the background, a bounded number of containers at a time.
    fn reconnect(&self) {
        let (inner, container) = (Arc::clone(&self.inner), Arc::clone(&self.container));
        self.inner.environment.tasks.spawn(async move {
            let _turn = inner.reconnecting.acquire().await;
            if let Err(error) = container.connection().get().await {
                tracing::warn!(container.id = %container.id(), %error, "a container does not answer");
            }
        });
    }

    /// Refuses all requests: another engine runs this container.
    async fn refuse_requests(mut self) {
        while let Some(request) = self.requests.recv().await {
            let _ = request.answer.send(Err(self.container.halted()));
        }
    }

    /// Waits for whatever ends the container: a request, its TTL, or its agent.
    pub(super) async fn run(&mut self) -> EndCause {
        let environment = Arc::clone(&self.inner.environment);
        let container = Arc::clone(&self.container);
        let connection = container.connection();
        let abandonment = self.abandonment.clone();
        tokio::select! {
            biased;
            request = self.requests.recv() => request.map_or(EndCause::Exited, |request| self.take(request)),
            () = exited(&*environment.engine, &container) => EndCause::Exited,
            _ = connection.distrusted() => EndCause::Distrusted,
            () = expired(&self.inner, &container, self.ttl_ends) => EndCause::Requested { force: false },
            () = abandonment.abandoned() => EndCause::Requested { force: true },
        }
    }

    /// Takes a request; its caller now waits for the end.
    pub(super) fn take(&mut self, request: EndRequest) -> EndCause {
        self.waiting.push(request.answer);
        match request.mode {
            EndMode::Graceful => EndCause::Requested { force: false },
            EndMode::Forced => EndCause::Requested { force: true },
            EndMode::LostByEngine => EndCause::Exited,
        }
    }

    pub(super) fn set_phase(&self, next: Phase) {
        self.container.set_phase(next);
    }
}

/// Waits for a creation. If it is abandoned, it gets some time to undo what it began; after that,
/// the future is dropped and the engine cleans up.
async fn until_undone(
    creating: impl Future<Output = Result<Container, CreateError>>,
    abandonment: &Abandonment,
) -> Result<Container, CreateError> {
    let too_late = async {
        abandonment.abandoned().await;
        tokio::time::sleep(UNDO_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        made = creating => made,
        () = too_late => Err(EngineError::Abandoned.into()),
    }
}

/// Waits until the container's agent has exited, or there is none.
async fn exited(engine: &dyn Engine, container: &LiveContainer) {
    loop {
        match engine.exited(container.id()).await {
            Ok(()) | Err(EngineError::NotFound { .. }) => return,
            Err(error) => {
                tracing::warn!(container.id = %container.id(), %error, "a container is not watched");
                tokio::time::sleep(WATCH_PAUSE).await;
            }
        }
    }
}

/// When its TTL is over if nobody sets the clock; `None` if it has none.
fn ttl_ends(inner: &Inner, container: &LiveContainer) -> Option<Instant> {
    let expires_unix_ms = container.row.expires_unix_ms?;
    let left_ms = expires_unix_ms.saturating_sub(inner.environment.clock.unix_ms());
    Instant::now().checked_add(Duration::from_millis(left_ms))
}

/// Waits until its TTL is over by the wall clock, which may be changed meanwhile: then garbage
/// collection notices it first.
async fn expired(inner: &Inner, container: &LiveContainer, mut ttl_ends: Option<Instant>) {
    while let Some(ends) = ttl_ends {
        tokio::time::sleep_until(ends).await;
        ttl_ends = self::ttl_ends(inner, container);
        if ttl_ends.is_some_and(|ends| ends <= Instant::now()) {
            return;
        }
    }
    std::future::pending::<()>().await;
}
